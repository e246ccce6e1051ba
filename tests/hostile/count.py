"""Count what becomes of hostile cases, and write it down.

    python -m tests.hostile.count                   # 10,000 cases, benchmarks/results/hostile.json
    python -m tests.hostile.count --cases 500 --seed 3 --out counts.json

Cases come from the same generators as the tests', seeded. Of eight cases five are calls of public names that need no
compilation to be refused, two are files read by a kind of run, one is a command; two in a thousand compile. A case that
neither works nor is refused is printed, kept in the file with its message, and ends the count with exit code 1. The file
is written after each group of cases.
"""

import argparse
import collections
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import hypothesis

from tests.hostile import commands, judge
from tests.hostile.surface import ENTRIES, SCIKIT_LEARN, cases

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "hostile.json"
SHARES = {
    "files": 0.25,
    "absurd options": 0.023,
    "odd words": 0.05,
    "odd run folders": 0.05,
    "public names": 0.625,
    "public names that compile": 0.002,
}


def generators():
    cheap, costly = ([e for e in ENTRIES if e.is_costly == flag] for flag in (False, True))

    def called(case):
        return judge.judged(case, validators=case.entry.validators)

    return {
        "files": (commands.readings(), lambda case: judge.judged(case, validators=SCIKIT_LEARN)),
        "absurd options": (commands.absurd_fits(), lambda case: case()),
        "odd words": (commands.odd_words(), lambda case: case()),
        "odd run folders": (commands.odd_folders(), lambda case: case()),
        "public names": (cases(cheap), called),
        "public names that compile": (cases(costly), called),
    }


class Tally:
    """Counts that grow case by case."""

    def __init__(self):
        self.outcomes = {name: collections.Counter() for name in SHARES}
        self.errors: collections.Counter = collections.Counter()
        self.names: collections.Counter = collections.Counter()
        self.wrong: list[dict] = []
        self.started = time.time()

    def run(self, group: str, strategy, verdict_of: Callable, wanted: int, seed: int) -> None:
        """Run so many cases of one group."""
        counter = self.outcomes[group]

        def one(case):
            verdict = verdict_of(case)
            counter[verdict.outcome] += 1
            self.errors[verdict.error or "none"] += 1
            if hasattr(case, "entry"):
                self.names[case.entry.name] += 1
            if not verdict.is_fine:
                self.wrong.append({"case": repr(case)[:500], **verdict._asdict()})
                print(f"{case!r:.300}\n    {verdict}", flush=True)

        part = 0
        while (lacking := wanted - counter.total()) > 0:
            options = hypothesis.settings(
                max_examples=min(lacking, 500),
                deadline=None,
                database=None,
                derandomize=False,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            hypothesis.seed(1000 * seed + part)(options(hypothesis.given(case=strategy)(one)))()
            part += 1
        print(f"{group}: {dict(counter)}, {time.time() - self.started:.0f} s", flush=True)

    def summary(self, seed: int) -> dict:
        """The counts so far."""
        whole = sum(self.outcomes.values(), collections.Counter())
        return {
            "what": "hostile cases by outcome: python -m tests.hostile.count",
            "cases": whole.total(),
            "seed": seed,
            "outcomes": dict(whole.most_common()),
            "outcomes by group": {group: dict(counter.most_common()) for group, counter in self.outcomes.items()},
            "errors by type": dict(self.errors.most_common()),
            "public names met": len(self.names),
            "wrong": self.wrong,
            "seconds": round(time.time() - self.started),
            "versions": {name: version(name) for name in ("geodax", "jax", "numpy", "hypothesis")},
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    tally, found = Tally(), {}
    for group, (strategy, verdict_of) in generators().items():
        tally.run(group, strategy, verdict_of, round(SHARES[group] * arguments.cases), arguments.seed)
        found = tally.summary(arguments.seed)
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{found['cases']} cases: {found['outcomes']}; {len(found['wrong'])} wrong. Written to {arguments.out}.")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
