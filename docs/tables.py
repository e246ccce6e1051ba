"""Writes the tables of the documentation from the figures in benchmarks/results, so that none is typed by hand.

    python docs/tables.py            rewrites the blocks between <!-- table: NAME --> and <!-- end of table --> in the pages
    python docs/tables.py a.md b.md  those of these pages only
    python docs/tables.py --check    changes nothing; fails if a block is not what the figures say

Run it after a benchmark. A figure that is not on file yet is a dash.
"""

import argparse
import json
import math
import re
from collections import Counter
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

import table_quality
from table_parts import by_size, conditions, figure, grid

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def stiefel_speed(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        text = f"{figure(row['min_ess_per_second'])} ({figure(row['min_ess_per_1000_gradients'])})"
        return {"wrong": f"~~{text}~~ wrong", "undecided": f"{text}, undecided"}.get(row.get("verdict", ""), text)

    corner = "smallest bulk ESS a second (per 1,000 gradients)"
    return by_size(facts, corner, cell) + conditions(facts)


def stiefel_with_warmup(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        return f"{figure(row.get('min_ess_per_second_with_warmup'))} ({figure(row['compile_seconds'])})"

    return by_size(facts, "smallest bulk ESS a second, warm-up included (seconds to compile)", cell)


def stiefel_cost(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        return figure(1000 * row["seconds_per_1000_gradients"])

    return by_size(facts, "microseconds a gradient", cell)


def stiefel_truth(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        if "verdict" not in row:
            return "–"
        numbers = " / ".join(
            "–" if row[k] is None else f"{abs(row[k]):.1f}" for k in ("entries", "logdensity", "identity")
        )
        return {"wrong": f"**{numbers}**", "undecided": f"{numbers}, undecided"}.get(row["verdict"], numbers)

    return by_size(facts, "errors in standard errors: E[X] / E[log π] / identity", cell)


def many_chains(facts: dict) -> list[str]:
    numbers = list(dict.fromkeys(row["chains"] for row in facts["rows"]))
    rows: dict[str, list[str]] = {}
    for row in facts["rows"]:
        name = f"`{row['sampler']}`, ({row['n']}, {row['p']})"
        rows.setdefault(name, []).append(figure(row["relative_to_first"]))
    return grid("gradients a second, relative to one chain", [f"{c} chain{'s' * (c > 1)}" for c in numbers], rows)


def transforms_cost(facts: dict) -> list[str]:
    rows = facts["cost"]["rows"]
    sizes = list(dict.fromkeys((row["n"], row["p"]) for row in rows))
    tasks = ("forward_us", "value_and_gradient_us", "inverse_us")

    def cell(row: dict | None) -> str:
        return " / ".join(figure(row[t]["median"]) if t in row else "–" for t in tasks) if row else "–"

    found = {(row["transform"], row["n"], row["p"]): row for row in rows}
    names = list(dict.fromkeys(row["transform"] for row in rows))
    cells = {name: [cell(found.get((name, *s))) for s in sizes] for name in names}
    lines = grid("microseconds: forward / value and gradient / inverse", [str(s) for s in sizes], cells)
    longest = max(v for row in rows if "rotations" not in row["transform"] for k, v in row.items() if "compile" in k)
    note = f"Medians of {facts['cost']['rounds']} rounds, in microseconds of processor time ({facts['machine']})."
    return [*lines, "", f"{note} The transforms compiled within {longest:.1f} s each."]


def transforms_sampling(facts: dict) -> list[str]:
    rows = facts["sampling"]["rows"]
    columns = list(dict.fromkeys((row["target"], row["n"], row["p"]) for row in rows))
    names = list(dict.fromkeys(row["parametrisation"] for row in rows))

    def cell(row: dict | None) -> str:
        if row is None:
            return "–"
        text = f"{figure(row['min_ess_per_second'])} ({figure(row['min_ess_per_1000_gradients'])})"
        return f"{text}, z {row['max_abs_z']:.1f}"

    found = {(row["parametrisation"], row["target"], row["n"], row["p"]): row for row in rows}
    cells = {
        f"{target}, ({n}, {p})": [cell(found.get((name, target, n, p))) for name in names] for target, n, p in columns
    }
    config = rows[0]
    return [
        *grid("smallest bulk ESS a second (per 1,000 gradients), largest error", names, cells),
        "",
        f"{config['chains']} chains of {config['draws']:,} draws, one after the other; seconds are of processor time "
        f"({facts['machine']}). z is the largest deviation of a mean entry or square from exact draws in standard errors.",
    ]


def many_chains_ess(facts: dict) -> list[str]:
    rows = facts.get("ess_rows", [])
    sizes = list(dict.fromkeys((row["n"], row["p"]) for row in rows))
    found = {(row["sampler"], row["n"], row["p"]): row for row in rows}

    def cells(sampler: str, key: str) -> list[str]:
        return [figure(found[sampler, *size][key]) for size in sizes]

    def ratio(key: str) -> list[str]:
        return [figure(found["hmc", *size][key] / found["nuts", *size][key]) for size in sizes]

    def columns(key: str, name: str) -> dict[str, list[str]]:
        return {f"`{s}`, {name}": cells(s, key) for s in ("hmc", "nuts")} | {f"ratio, {name}": ratio(key)}

    lines = (
        columns("min_ess_per_second", "a second")
        | columns("min_ess_per_second_with_warmup", "a second, warm-up counted")
        | columns("min_ess_per_1000_gradients", "per 1,000 gradients")
    )
    return grid("smallest bulk ESS of 64 chains in all", [str(s) for s in sizes], lines)


def ppca(facts: dict) -> list[str]:
    """Samplers of the PPCA model, by size and form of the density."""
    columns = list(dict.fromkeys((row["n"], row["p"], row["num_rows"], row["form"]) for row in facts["rows"]))
    columns.sort(key=lambda column: (-column[0], column[3]))
    names = list(dict.fromkeys(row["sampler"] for row in facts["rows"]))
    found = {(row["sampler"], row["n"], row["p"], row["num_rows"], row["form"]): row for row in facts["rows"]}

    def cell(row: dict | None) -> str:
        if row is None:
            return "–"
        text = f"{figure(row['min_ess_per_second'])} ({figure(row['min_ess_per_1000_gradients'])})"
        divergent = f", {row['divergences']} divergent" if row["divergences"] else ""
        return f"{text}, R-hat {row['max_rhat']:.2f}, z {row['z']:.1f}{divergent}"

    cells = {name: [cell(found.get((name, *column))) for column in columns] for name in names}
    config, left_out = facts["config"], facts.get("left_out", {})
    return [
        *grid(
            "smallest bulk ESS a second (per 1,000 gradients)",
            [f"n = {n}, p = {p}, N = {rows}, {form}" for n, p, rows, form in columns],
            cells,
        ),
        "",
        f"Medians of {config['repeats']} repeats of {config['draws']} draws of every chain: {config['chains']} chains one after the "
        f"other, or {config['many']} side by side (`hmc`, and where said). Seconds of the processor, Stan's of the clock "
        f"({facts['machine'].split(',')[0]}, one thread)."
        + "".join(f" Left out: {name} ({reason})." for name, reason in left_out.items())
        + (f" {config['note']}" if config.get("note") else ""),
    ]


def whvi_layer(facts: dict) -> list[str]:
    """Layers of one size: parameters and the time of a forward and backward pass."""
    cells = {
        name: [f"{row['parameters']:,}", figure(row["microseconds"] / 1000), figure(row["times_whvi"])]
        for name, row in facts["rows"].items()
    }
    lines = grid("layer", ["parameters", "milliseconds, forward and backward", "relative to WHVI"], cells)
    size, versions = facts["size"], ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    note = f"{size:,} × {size:,}, batches of {facts['batch']}, {facts['dtype']}; medians of {facts['rounds']} rounds, {facts['clock']}"
    return [*lines, "", f"{note} ({facts['machine']}; {versions})."]


def hadamard(facts: dict) -> list[str]:
    """The transform beside a copy of the same array, in one thread."""
    found = facts["one thread"]
    names = ("fwht", "fwht, forward and backward", "native", "kronecker", "dense")
    sizes = [size for size in found["sizes"] if int(size) in (64, 256, 1024, 4096, 16384)]

    def cell(name: str, size: str) -> str:
        row = found["sizes"][size].get(name)
        return figure(row["copies"]) if row else "–"

    lines = grid(
        "copies of the array", [f"D = {s}" for s in sizes], {f"`{n}`": [cell(n, s) for s in sizes] for n in names}
    )
    note = f"{found['rows']} vectors, {found['dtype']}, medians of {found['rounds']} rounds ({found['machine']}, one thread)"
    if later := found.get("measured later"):
        load = max(again["load"] for again in later.values())
        note += f". Measured later, in processor time, on a machine with a load of {load:.0f}: "
        note += ", ".join(f"`{name}`" for name in later)
    return [*lines, "", f"{note}."]


def stochastic_gradients(facts: dict) -> list[str]:
    """Milliseconds of a step, and in units of plain gradient descent's in the same process."""
    cells = {
        name: [figure(row["milliseconds"]), figure(row["ratio_to_sgd"]), figure(row["ratio_of_fastest"])]
        for name, row in facts["rows"].items()
    }
    lines = grid("sampler", ["milliseconds a step", "relative to SGD", "fastest against fastest"], cells)
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    told = f", {facts['xla_flags']}" if facts["xla_flags"] else ""
    note = f"A network 784-400-400-10, batches of {facts['batch']}, {facts['dtype']}, one thread; medians of {facts['rounds']} rounds"
    return [*lines, "", f"{note} of {facts['steps']} steps ({facts['machine']}{told}; {versions})."]


def natural_gradients(facts: dict) -> list[str]:
    """Processor time of a step, and in units of Adam's in the same process."""
    names = ("Adam, optax", "vi.ivon", "vi.noisy_kfac")
    used = {name: facts["rows"][name]["processor_milliseconds"] for name in names}
    cells = {name: [figure(value), figure(value / used[names[0]])] for name, value in used.items()}
    lines = grid("method", ["milliseconds of a processor", "relative to Adam"], cells)
    note = f"A network 784-400-400-10, batches of {facts['batch']}, {facts['dtype']}, one thread; medians of {facts['rounds']} rounds"
    return [*lines, "", f"{note} of {facts['steps']} steps ({facts['machine']})."]


def variational_steps(facts: dict) -> list[str]:
    """Held-out accuracy and log probability, and the bound, by method and number of steps."""
    lengths = list(dict.fromkeys(row["steps"] for row in facts["variational"]))
    cells: dict[str, list[str]] = {}
    for row in facts["variational"]:
        text = f"{row['accuracy']:.3f}, {row['log_probability']:.2f}, {row['bound']:,.0f}".replace("-", "−")
        cells.setdefault(row["method"], []).append(text)
    return grid("method, rate", [f"{length:,} steps" for length in lengths], cells)


def laplace_variances(facts: dict) -> list[str]:
    """Held-out log probability of Laplace approximations by the variance of the prior."""

    def text(scores: dict) -> str:
        return f"{scores['log_probability']:.3f}".replace("-", "−")

    variances = list(facts["laplace"][0]["variances"])
    return grid(
        "network, training",
        ["network", *(f"variance {float(value):g}" for value in variances), "`maximised()`"],
        {
            r["network"]: [text(r["point"]), *map(text, r["variances"].values()), text(r["maximised"])]
            for r in facts["laplace"]
        },
    )


def laplace_torch(facts: dict) -> list[str]:
    """Evidence, agreement of predictions and time beside laplace-torch."""

    def cells(row: dict) -> list[str]:
        ours, theirs = (
            f"{figure(1000 * row['seconds'][f'{who}fit'])} + {figure(1000 * row['seconds'][f'{who}predict'])}"
            for who in ("", "their_")
        )
        apart = "–" if "covariance_apart" not in row else f"{row['evidence_apart']:.3f}, {row['covariance_apart']:.0e}"
        evidence = [f"{row[name]:.3f}".replace("-", "−") for name in ("evidence", "their_evidence")]
        return [*evidence, f"{row['covariance']:.0e}", apart.replace("-", "−", 1), ours, theirs]

    header = ["log evidence", "laplace-torch", "covariance", "without weight–bias", "ms", "laplace-torch, ms"]
    rows = {f"{row['data']}, {row['layers']}, {row['structure']}": cells(row) for row in facts["rows"]}
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    return [
        *grid("network, layers, precision", header, rows),
        "",
        "covariance: largest difference of a covariance of outputs, relative to the largest variance; without weight–bias: log evidence "
        "and the same difference if geodax, too, leaves out the correlation of weights and biases; ms: milliseconds of the processor for "
        f"the fit and for the predictions of 100 rows, medians of {facts['rounds']} rounds ({facts['machine']}; {versions}).",
    ]


def inferences(facts: dict) -> list[str]:
    """Quality on held-out rows and seconds of each inference, means over the splits."""

    def mean(name: str, key: str, first: int = 0, end: int | None = None) -> float:
        return fmean([row[key] for row in facts["rows"] if row["inference"] == name][first:end])

    cells = {
        name: [
            f"{100 * mean(name, 'accuracy'):.1f}",
            f"{mean(name, 'log_probability'):.3f}",
            f"{mean(name, 'ece'):.3f}",
            f"{mean(name, 'seconds', 0, 1):.1f}",
            f"{mean(name, 'seconds', 1):.1f}",
        ]
        for name in dict.fromkeys(row["inference"] for row in facts["rows"])
    }
    header = ["accuracy, %", "log probability", "calibration error", "seconds", "again"]
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    splits = max(row["split"] for row in facts["rows"]) + 1
    note = f"Means over {splits} splits. Seconds of the processor, with compilation and on further splits ({facts['machine']}; {versions})."
    return [*grid("inference", header, cells), "", note]


def adapters(facts: dict) -> list[str]:
    """Quality of each kind of adapter at its own width, means over the seeds with their standard errors."""
    reported = [row for row in facts["rows"] if row["seed"] < facts["first_tuning"]]

    def cell(rows: list[dict], key: str, scale: float, digits: int) -> str:
        values = [scale * row[key] for row in rows]
        error = f" ± {stdev(values) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else ""
        return f"{fmean(values):.{digits}f}{error}"

    cells = {}
    for name in dict.fromkeys(row["method"] for row in facts["rows"]):
        rows = [row for row in reported if row["method"] == name]
        if rows:
            scores = [cell(rows, *spec) for spec in (("accuracy", 100, 1), ("log_probability", 1, 3), ("ece", 1, 3))]
            counts = [f"{rows[0]['parameters']:,} ({rows[0]['dimensions']:,})", f"{rows[0]['width']:g}"]
            rhat = f"{max(row['rhat'] for row in rows):.2f}" if "rhat" in rows[0] else "–"
            cells[name] = [*scores, *counts, rhat, figure(fmean(row["seconds"] for row in rows))]
    header = [
        "accuracy, %",
        "log probability",
        "calibration error",
        "numbers (dimensions)",
        "width",
        "R-hat",
        "seconds",
    ]
    seeds = len({row["seed"] for row in reported})
    failed = {name: sum(row.get("diverged", False) for row in reported if row["method"] == name) for name in cells}
    again = "".join(
        f" A chain of “{name}” diverged in {count} of the seeds, which were sampled again with half the step and twice the iterations."
        for name, count in failed.items()
        if count
    )
    note = (
        f"Means over {seeds} seeds with standard errors; rank {facts['rank']}, {facts['examples']} examples, network "
        f"{facts['network']}. R-hat is the largest, of log probabilities of test examples. Seconds of the processor, compilation "
        f"included ({facts['machine']}; {', '.join(f'{name} {found}' for name, found in facts['versions'].items())})."
    )
    return [*grid("adapter", header, cells), "", note + again]


def movement_regression(facts: dict) -> list[str]:
    """The measures of chains whose posterior is known, means over the runs, and how many runs are flagged."""
    keys = ["variance", "temperature", "share of parameters", "rhat of functions"]
    cells = {}
    for step, thinning in dict.fromkeys((row["step"], row["thinning"]) for row in facts["regression"]):
        rows = [row for row in facts["regression"] if (row["step"], row["thinning"]) == (step, thinning)]
        numbers = [figure(sum(row[key] for row in rows) / len(rows)) for key in keys]
        flagged = [sum(row[f"flagged by {by}"] for row in rows) for by in ("temperature", "parameters")]
        cells[f"{step:g}, {thinning}"] = [*numbers, *(f"{count} of {len(rows)}" for count in flagged)]
    header = ["true share of the variance", "temperature", "share of quarters", "R-hat of functions"]
    header += ["flagged with density", "without"]
    return grid("step × curvature, thinning", header, cells) + _versions(facts)


def movement_network(facts: dict) -> list[str]:
    """The measures of chains of a network beside NUTS, means over the seeds."""
    keys = ["log density", "epistemic", "temperature", "share of parameters", "rhat of functions"]
    cells = {}
    for name in dict.fromkeys(row["sampler"] for row in facts["network"]):
        rows = [row for row in facts["network"] if row["sampler"] == name]
        cells[name] = [f"{sum(row[k] for row in rows) / len(rows):.3f}" if k in rows[0] else "–" for k in keys]
    header = ["log density of new rows", "epistemic share", "temperature", "share of quarters", "R-hat of functions"]
    return grid("chains", header, cells) + _versions(facts)


def equal_cost(facts: dict) -> list[str]:
    """Scores of each method on each set, means with standard errors over the splits that all methods have."""
    lines: list[str] = []
    for data in dict.fromkeys(row["data"] for row in facts["rows"]):
        methods = dict.fromkeys(row["method"] for row in facts["rows"] if row["data"] == data)
        found = {
            method: [row for row in facts["rows"] if (row["data"], row["method"]) == (data, method)]
            for method in methods
        }
        seeds = set.intersection(*({row["seed"] for row in rows} for rows in found.values()))
        if not seeds:
            continue
        cells = {}
        for method, rows in found.items():
            shown = [row for row in rows if row["seed"] in seeds]
            scores = [_with_error([row[key] for row in shown]) for key in ("log_score", "error", "calibration")]
            costs = [figure(shown[0]["millions of gradients"]), figure(min(row["seconds"] for row in rows))]
            cells[method] = [*scores, *costs]
        names = ["error rate", "calibration error"] if data == "digits" else ["RMSE", "90 % coverage"]
        title = f"{data.removeprefix('uci/')}, {len(seeds)} split{'s' * (len(seeds) > 1)}"
        lines += [*grid(title, ["log score", *names, "million gradients", "seconds"], cells), ""]
    return lines[:-1] + _versions(facts)


def _with_error(values: list[float]) -> str:
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return f"{mean:.3f} ± {math.sqrt(variance / len(values)):.3f}"


def _versions(facts: dict) -> list[str]:
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items())
    return ["", f"{facts['machine'][0].upper()}{facts['machine'][1:]}; {versions}."]


def hostile(facts: dict) -> list[str]:
    outcomes = list(facts["outcomes"])
    groups = facts["outcomes by group"] | {"all": facts["outcomes"]}
    rows = {
        group: [f"{sum(found.values()):,}", *(f"{found.get(outcome, 0):,}" for outcome in outcomes)]
        for group, found in groups.items()
        if found
    }
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    note = f"Public names met: {facts['public names met']}; seed {facts['seed']}; {versions}."
    return [*grid("cases", ["number", *outcomes], rows), "", note]


def kills(facts: dict) -> list[str]:
    columns = {
        "kills": "kills",
        "at a random moment": "at_moments",
        "before a change of a file": "at_changes",
        "that left a temporary file": "in_writing",
        "runs": "runs",
        "identical to an uninterrupted one": "identical",
        "draws or checkpoints lost": "lost",
    }
    found = facts["kills"] | {
        "all": {name: sum(row[name] for row in facts["kills"].values()) for name in columns.values()}
    }
    rows = {name: [f"{row[key]:,}" for key in columns.values()] for name, row in found.items()}
    return grid("", list(columns), {name.replace("_", " "): cells for name, cells in rows.items()})


def soak_steps(facts: dict) -> list[str]:
    rows = {
        name: [
            f"{row['steps']:,}",
            figure(row["seconds"]),
            f"{row['megabytes_early']:.1f}",
            f"{row['megabytes_late']:.1f}",
            f"{100 * row['growth']:.2f} %",
            figure(row.get("worst_residual")),
        ]
        for name, row in facts["steps"].items()
    }
    header = ["iterations", "seconds", "MB early", "MB late", "growth", "worst residual"]
    return grid("", header, rows)


def soak_checkpoints(facts: dict) -> list[str]:
    rows = {
        name: [
            figure(row["seconds"]),
            f"{figure(row['spread'][0])} to {figure(row['spread'][1])}",
            figure(row["processor_seconds"]),
            f"{100 * row['share_at_one_a_minute']:.2f} %",
        ]
        for name, row in facts["checkpoints"].items()
    }
    return grid("state", ["seconds", "spread", "of the processor", "share at one a minute"], rows)


def resonance(facts: dict) -> list[str]:
    """HMC of fixed lengths near a peak, with and without jitter; the last row is NUTS."""
    rows = [
        f"| {row['mean_steps']:.1f} (`nuts`) | | |"
        if row["steps"] == "nuts"
        else f"| {row['steps']} | {row['length']:.2f} | {row['jitter']:g} |"
        for row in facts["resonance"]
    ]
    found = [f" {row['acceptance']:.2f} | {row['min_bulk_ess']:,.0f} |" for row in facts["resonance"]]
    return [
        "| steps | length | jitter | acceptance | smallest bulk ESS of an entry |",
        "|---|---|---|---|---|",
        *(row + end for row, end in zip(rows, found, strict=True)),
    ]


def rounding(facts: dict) -> list[str]:
    """Variances with a constant in a log density of single precision."""
    return [
        "| constant | rounded to | variance by `hmc` / exact | by `nuts` |",
        "|---|---|---|---|",
        *(
            f"| {row['constant']:,.0f} | {figure(row['rounded_to'])} | "
            f"{', '.join(f'{x:.2f}' for x in row['hmc'])} | {', '.join(f'{x:.2f}' for x in row['nuts'])} |"
            for row in facts["rounding"]
        ),
    ]


def batch_orders(facts: dict) -> list[str]:
    """Variances by the order of the step and of the batches."""
    steps = sorted({row["step"] for row in facts["rows"]})
    at = {(row["sampler"], row["batches"], row["step"]): row for row in facts["rows"]}
    names = {s: f'`sghmc`, `"{s}"`' for s in ("paper", "baoab", "ubu")} | {"sgnht": "`sgnht`"}
    heads = [f"{order}, {step:g}" for order in ("independent", "epochs", "symmetric") for step in steps]
    return [
        f"| sampler | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
        *(
            f"| {name} | "
            + " | ".join(
                f"{at[sampler, *cell]['variance']:.3f}"
                for cell in ((order, step) for order in ("independent", "epochs", "symmetric") for step in steps)
            )
            + " |"
            for sampler, name in names.items()
        ),
    ]


def microcanonical_batches(facts: dict) -> list[str]:
    """Largest bias of a variance and effective draws of squares, with gradients of batches."""
    names = {"microcanonical": "microcanonical", "sgnht": "`sgnht`", "sghmc": '`sghmc`, `"baoab"`'}
    names["sghmc, noise known"] = "the same, size of the noise known"
    at: dict[tuple, dict] = {}
    for row in facts["rows"]:
        at.setdefault((row["coordinates"], row["batch"], row["length"], row["step"]), {})[row["sampler"]] = row

    def cell(row: dict | None) -> str:
        return "–" if row is None else f"{100 * row['bias']:.1f} %, {100 * row['largest']:.0f} % ({row['ess']:.2g})"

    heads = ["coordinates", "batch", "step size", *names.values()]
    shown = {key: rows for key, rows in at.items() if key[2] == (1.0 if key[0] == "posterior" else 3.0)}
    lines = [
        [{"posterior": "isotropic", "raw": "ill-conditioned"}[key[0]], str(key[1]), f"{key[3]:g}"]
        + [cell(rows.get(name)) for name in names]
        for key, rows in shown.items()
    ]
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    return [
        *(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *lines)),
        "",
        "Bias of the variances along principal directions: mean, and largest modulus (effective draws of squares in 1,000 gradients, of the "
        f"slowest direction). Standard errors are at most {100 * max(r['error'] for each in shown.values() for r in each.values()):.0f} %; "
        f"{versions}.",
    ]


def mass_matrices(facts: dict) -> list[str]:
    columns = [("nuts", k) for k in ("diagonal", "dense", "low_rank")] + [
        ("hmc", k) for k in ("diagonal", "dense", "low_rank")
    ]
    columns += [("numpyro", "diagonal"), ("numpyro", "dense")]
    found = {(row["target"], row["sampler"], row["mass_matrix"]): row for row in facts["rows"]}
    names = dict.fromkeys(row["target"] for row in facts["rows"])

    def cell(row: dict | None) -> str:
        return "–" if row is None else figure(row["gradients_per_draw"])

    rows = {name: [cell(found.get((name, *column))) for column in columns] for name in names}
    headings = [f"{'NumPyro' if sampler == 'numpyro' else sampler} {kind}" for sampler, kind in columns]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [*grid("gradients per effective draw", headings, rows), "", f"({versions})"]


def time_to_answer(facts: dict) -> list[str]:
    loads = [row["load_average"] for row in facts["rows"]]
    headings = ["cold: processor (clock), s", "again: processor (clock), s", "runs", "smallest bulk ESS", "z"]
    rows = {}
    order = list(dict.fromkeys(row["target"] for row in facts["rows"]))
    for row in sorted(facts["rows"], key=lambda row: order.index(row["target"])):
        times = [
            f"{row[f'{when}_processor_seconds']:.1f} ({row[f'{when}_clock_seconds']:.1f})" for when in ("cold", "again")
        ]
        rows[f"{row['target']}, {row['program']}"] = [
            *times,
            str(row["repeats"]),
            figure(row["min_ess"]),
            f"{row['z']:.1f}",
        ]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [
        *grid("target, program", headings, rows),
        "",
        f"Medians ({facts['machine']}, load {min(loads):.0f} to {max(loads):.0f}; {versions}).",
    ]


def tangent_preconditioning(facts: dict) -> list[str]:
    """Gradients of both samplers on the manifold and in the chart; bold where a mean is off, a dagger where R-hat is."""
    columns = list(dict.fromkeys((row["sampler"], row["way"]) for row in facts["rows"]))
    ways = ["one scale", "canonical", "embedded, geodesic"]
    ways += [f"{kind}{signs}" for kind in ("diagonal", "low_rank", "dense") for signs in ("", ", signs")]
    columns.sort(key=lambda column: (column[0] != "nuts", ways.index(column[1])))
    found = {(row["target"], row["sampler"], row["way"]): row for row in facts["rows"]}

    def cell(row: dict | None) -> str:
        if row is None:
            return "–"
        text = figure(row["gradients_per_draw"])
        return f"{f'**{text}**' if row['z'] > row['bound'] else text}{' †' if row['rhat'] > 1.05 else ''}"

    rows = {
        f"{name} ({figure(found[name, 'nuts', 'canonical']['farthest'])})": [
            cell(found.get((name, *c))) for c in columns
        ]
        for name in dict.fromkeys(row["target"] for row in facts["rows"])
    }
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    headings = [f"`{sampler}` {way}" for sampler, way in columns]
    return [*grid("gradients per effective draw (farthest draw)", headings, rows), "", f"({versions})"]


def microcanonical_cost(facts: dict) -> list[str]:
    found = {(row["target"], row["sampler"]): row for row in facts["rows"]}
    targets, samplers = (list(dict.fromkeys(key)) for key in zip(*found, strict=True))

    def cell(row: dict | None) -> str:
        return "–" if row is None else f"{figure(row['gradients_per_draw'])} ({figure(row['of_squares'])})"

    rows = {_ours(s): [cell(found.get((t, s))) for t in targets] for s in samplers}
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [*grid("gradients per effective draw of entries (squares)", targets, rows), "", f"({versions})"]


def microcanonical_bias(facts: dict) -> list[str]:
    def cells(row: dict) -> list[str]:
        error = f"{row['logdensity_error']:.2f} ({row['its_standard_error']:.2f})"
        variance = "–" if row["mean_variance_error"] is None else f"{100 * row['mean_variance_error']:.1f} %"
        return [error, variance, f"{row['energy_variance']:.1e}"]

    rows = {f"{row['target']}: {_ours(row['sampler'])}": cells(row) for row in facts["rows"] if row["energy_variance"]}
    return grid("target and sampler", ["log density", "variances", "energy variance"], rows)


def _ours(sampler: str) -> str:
    name, *chains = sampler.split(", ")
    return sampler if name.startswith("BlackJAX") else ", ".join([f"`{name}`", *chains])


def posteriordb(facts: dict) -> list[str]:
    """Gradients and the largest difference from the reference, bold beyond its bound; a dagger where `check` has findings."""
    samplers = list(dict.fromkeys(row["sampler"] for row in facts["rows"]))
    found = {(row["posterior"], row["sampler"]): row for row in facts["rows"]}

    def cell(row: dict | None) -> str:
        if row is None:
            return "–"
        error = abs(row["largest_error"]["in_standard_errors"])
        text = f"**{error:.1f}**" if error > row["bound"] else f"{error:.1f}"
        return f"{figure(row['gradients_per_draw'])} ({text}){' †' if row['findings'] else ''}"

    rows = {
        f"`{name}`, {dim}": [cell(found.get((name, sampler))) for sampler in samplers]
        for name, dim in dict.fromkeys((row["posterior"], row["dim"]) for row in facts["rows"])
    }
    headings = [f"`{s}`" if s in ("nuts", "hmc") else s.replace("numpyro", "NumPyro") for s in samplers]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    corner = "gradients per effective draw (largest error in standard errors)"
    return [*grid(corner, headings, rows), "", f"({versions})"]


def sum_of_sizes(key: tuple[str, int, int]) -> int:
    return key[1] + key[2]


def growth_between(first: float | None, second: float | None, size: int, larger: int) -> str:
    """The exponent with which seconds grow from one size to a larger one."""
    return f"{math.log(second / first) / math.log(larger / size):.2f}" if first and second else "–"


def growth(facts: dict) -> list[str]:
    """Seconds and memory of each step by size; the slopes say how they grow."""
    found = {(row["model"], row["rows"], row["columns"]): row for row in facts["rows"]}

    def cell(part: dict | None) -> str:
        if part is None or "error" in part:
            return "–"
        if "stopped_after" in part:
            return f"more than {part['stopped_after']:,.0f} s"
        return f"{figure(part['seconds'])} ({part['peak_bytes'] / 2**30:.2g})"

    steps = ("fit", "report", "predict")
    lines = {
        f"`{model}`, {rows:,} × {columns:,}": [cell(row.get(step)) for step in steps]
        for (model, rows, columns), row in sorted(found.items())
    }
    slopes = {}
    for model in dict.fromkeys(key[0] for key in sorted(found)):
        for axis, name in ((1, "rows"), (2, "columns")):
            sizes = sorted({key[axis] for key in found if key[0] == model})[-2:]
            pair = [min((k for k in found if k[0] == model and k[axis] == size), key=sum_of_sizes) for size in sizes]
            if len(pair) == 2:
                slopes[f"`{model}`, {sizes[0]:,} to {sizes[1]:,} {name}"] = [
                    growth_between(*(found[key].get(step, {}).get("seconds") for key in pair), *sizes) for step in steps
                ]
    counts = ", ".join(f"{name} {value}" for name, value in facts["config"].items())
    versions = ", ".join(f"{name} {value}" for name, value in facts["versions"].items())
    loads = [row["load"] for row in facts["rows"]]
    return [
        *grid("rows × columns: processor seconds (GiB at the peak)", list(steps), lines),
        "",
        *grid("slope of log seconds over log size", list(steps), slopes),
        "",
        f"One run each with {counts} ({facts['machine']}, load {min(loads):.0f} to {max(loads):.0f}; {versions}).",
    ]


def acceptance_rates(facts: dict) -> list[str]:
    """Effective draws a gradient relative to the target 0.8: geometric means over densities, and their range."""
    found = {(row["density"], row["target"]): row for row in facts["rows"]}
    kinds = {row["density"]: row["kind"] for row in facts["rows"]}
    quantities = ("entries", "squares", "log density")

    def cell(kind: str, quantity: str, target: float) -> str:
        ratios = [found[d, target][quantity] / found[d, 0.8][quantity] for d, k in kinds.items() if k == kind]
        return f"{geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"

    targets = [target for target in facts["config"]["targets"] if target != 0.8]
    numbers = Counter(kinds.values())
    rows = {
        f"{kind} ({number}), {quantity}": [cell(kind, quantity, target) for target in targets]
        for kind, number in numbers.items()
        for quantity in quantities
        if all(quantity in row for row in facts["rows"] if row["kind"] == kind)
    }
    return grid("densities, quantity", [f"target {target:g}" for target in targets], rows)


TABLES = {
    "acceptance-rates": ("acceptance_rates", acceptance_rates),
    "growth": ("growth", growth),
    "mass-matrices": ("mass_matrices", mass_matrices),
    "time-to-answer": ("time_to_answer", time_to_answer),
    "tangent-preconditioning": ("tangent_preconditioning", tangent_preconditioning),
    "microcanonical-bias": ("microcanonical", microcanonical_bias),
    "microcanonical-cost": ("microcanonical", microcanonical_cost),
    "microcanonical-batches": ("microcanonical_batches", microcanonical_batches),
    "microcanonical-speed": ("stiefel_microcanonical", stiefel_speed),
    "microcanonical-with-warmup": ("stiefel_microcanonical", stiefel_with_warmup),
    "posteriordb": ("posteriordb", posteriordb),
    "batch-orders": ("batch_orders", batch_orders),
    "resonance": ("pitfalls", resonance),
    "rounding": ("pitfalls", rounding),
    "kills": ("soak", kills),
    "soak-steps": ("soak", soak_steps),
    "soak-checkpoints": ("soak", soak_checkpoints),
    "stiefel-speed": ("stiefel", stiefel_speed),
    "stiefel-with-warmup": ("stiefel", stiefel_with_warmup),
    "stiefel-cost": ("stiefel", stiefel_cost),
    "stiefel-truth": ("stiefel", stiefel_truth),
    "many-chains": ("many_chains", many_chains),
    "many-chains-ess": ("many_chains", many_chains_ess),
    "ppca": ("numpyro_ppca", ppca),
    "transforms-cost": ("transforms", transforms_cost),
    "transforms-sampling": ("transforms", transforms_sampling),
    "whvi-layer": ("whvi_layer", whvi_layer),
    "hadamard": ("hadamard", hadamard),
    "inferences": ("inferences", inferences),
    "laplace-torch": ("laplace_torch", laplace_torch),
    "laplace-variances": ("gaussian_posteriors", laplace_variances),
    "variational-steps": ("gaussian_posteriors", variational_steps),
    "adapters": ("adapters", adapters),
    "equal-cost": ("equal_cost", equal_cost),
    "movement-regression": ("movement", movement_regression),
    "movement-network": ("movement", movement_network),
    "hostile": ("hostile", hostile),
    "stochastic-gradients": ("stochastic_gradients", stochastic_gradients),
    "natural-gradients": ("natural_gradients", natural_gradients),
    "stochastic-gradients-256": ("stochastic_gradients-256", stochastic_gradients),
    **table_quality.TABLES,
}


def rendered(text: str) -> str:
    """A page with its tables as the figures say."""

    def block(found: re.Match) -> str:
        name = found[2]
        if name not in TABLES:
            raise SystemExit(f"tables.py: no table is called {name!r}; there are {', '.join(TABLES)}.")
        source, render = TABLES[name]
        path = RESULTS / f"{source}.json"
        lines = render(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else ["Not measured yet."]
        return "\n".join([found[1], *lines, "", found[3]])

    return BLOCK.sub(block, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="all if left out")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for page in options.pages or sorted([*DOCS.glob("*.md"), *DOCS.glob("methods/*.md")]):
        text = page.read_text(encoding="utf-8")
        new = rendered(text)
        if new != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    if options.check and stale:
        raise SystemExit(f"Tables differ from benchmarks/results in {', '.join(stale)}; run python docs/tables.py.")


if __name__ == "__main__":
    main()
