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
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import hypothesis

from tests.hostile import commands, judge
from tests.hostile.surface import ENTRIES, cases

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
        "public names": (cases(cheap), called),
        "public names that compile": (cases(costly), called),
        "files": (commands.readings(), judge.judged),
        "absurd options": (commands.absurd_fits(), lambda case: case()),
        "odd words": (commands.odd_words(), lambda case: case()),
        "odd run folders": (commands.odd_folders(), lambda case: case()),
    }


def count(total: int, seed: int) -> Iterator[dict]:
    """Run the cases; yields the counts so far after each group."""
    outcomes = {name: collections.Counter() for name in SHARES}
    errors: collections.Counter = collections.Counter()
    names: collections.Counter = collections.Counter()
    wrong = []
    started = time.time()
    for group, (strategy, verdict_of) in generators().items():
        done = 0

        def one(case, group=group, verdict_of=verdict_of):
            nonlocal done
            done += 1
            verdict = verdict_of(case)
            outcomes[group][verdict.outcome] += 1
            errors[verdict.error or "none"] += 1
            if hasattr(case, "entry"):
                names[case.entry.name] += 1
            if not verdict.is_fine:
                wrong.append({"case": repr(case)[:500], **verdict._asdict()})
                print(f"{case!r:.300}\n    {verdict}", flush=True)

        wanted, part = round(SHARES[group] * total), 0
        while done < wanted:
            options = hypothesis.settings(
                max_examples=min(wanted - done, 500),
                deadline=None,
                database=None,
                derandomize=False,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )
            hypothesis.seed(1000 * seed + part)(options(hypothesis.given(strategy)(one)))()
            part += 1
        print(f"{group}: {dict(outcomes[group])}, {time.time() - started:.0f} s", flush=True)
        whole = sum(outcomes.values(), collections.Counter())
        yield {
            "what": "hostile cases by outcome: python -m tests.hostile.count",
            "cases": sum(whole.values()),
            "seed": seed,
            "outcomes": dict(whole.most_common()),
            "outcomes by group": {group: dict(counter.most_common()) for group, counter in outcomes.items()},
            "errors by type": dict(errors.most_common()),
            "public names met": len(names),
            "wrong": wrong,
            "seconds": round(time.time() - started),
            "versions": {name: version(name) for name in ("geodax", "jax", "numpy", "hypothesis")},
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found: dict = {}
    for found in count(arguments.cases, arguments.seed):
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{found['cases']} cases: {found['outcomes']}; {len(found['wrong'])} wrong. Written to {arguments.out}.")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
