"""What the numbers of a report show, in up to five sentences that are computed from them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oversmoothing.diagnosis.report import Report

MOST = 5  # sentences
ALIKE = 0.95  # mean cosine from which on tokens are called nearly parallel
CHANGE = 1.25  # ratio of two ranks from which on they are called different
LOW = 0.1  # share of the largest possible rank, below which a rank is called low
JUMP = 1.5  # ratio of the ranks of neighbouring layers from which on the change is mentioned
LONG = 5.0  # ratio to the median norm above which a token is an outlier
LARGE = 0.1  # share of the energy, from which on an outlier is mentioned
SHARE = 0.5  # of the energy or of the attention, from which on it is mentioned
IN_LINE = 4  # number of metrics in the line of a training step
SHRUNK = 0.1  # ratio of the norms of the last and the first layer, below which it is mentioned


def sentences(report: "Report") -> list[str]:
    """Returns the most telling sentences first."""
    kinds = report.by_kind()
    if len(kinds) > 1:
        few = max(1, MOST // len(kinds))
        return [f"{kind}: {s}" for kind, of in kinds.items() for s in sentences(of)[:few]]
    parts = (
        _zeros,
        _rank,
        _where,
        _outliers,
        _reference,
        _across,
        _gradient,
        _channel,
        _attention,
        _norm,
    )
    return [said for part in parts for said in part(report)][:MOST]


def line(report: "Report") -> str:
    """The first metrics of the table, from the first layer to the last."""
    if len(kinds := report.by_kind()) > 1:
        return "; ".join(f"{kind}: {line(of)}" for kind, of in kinds.items())
    said = []
    for metric in (report.shown or tuple(report.values))[:IN_LINE]:
        if known := _known(report, metric):
            said.append(f"{metric} {number(known[0][1])} → {number(known[-1][1])}")
    return ", ".join(said)


def number(value: float | None) -> str:
    """Three significant digits; a dash for None."""
    return "–" if value is None else f"{value:#.3g}".rstrip(".")


def bounded(value: float) -> str:
    """A largest possible rank, which is the mean over samples of several lengths."""
    return f"{round(value, 1):g}"


def _known(report: "Report", metric: str) -> list[tuple[str, float]]:
    """The layers and their values, without layers where there is none."""
    values = report.values.get(metric, [None] * len(report.layers))
    return [(layer, v) for layer, v in zip(report.layers, values) if v is not None]


def _ranks(report: "Report") -> list[tuple[str, float]]:
    """The layers and their effective ranks; those of tokens that are all 0 mean nothing."""
    return [(layer, v) for layer, v in _known(report, "effective_rank") if v > 0]


def _zeros(report: "Report") -> Iterator[str]:
    """Tokens that are all 0, which have a norm and no share of the mean."""
    samples, others = (report.counts.get(name, []) for name in ("norm", "mean_share"))
    zeros = [n - m for n, m in zip(samples, others)]
    if (first := next((i for i, n in enumerate(zeros) if n), None)) is None:
        return
    lasts = all(n >= zeros[first] for n in zeros[first:])
    where = f"From {report.layers[first]} on" if lasts else f"After {report.layers[first]}"
    some = zeros[first] < samples[first]
    of = f" in {zeros[first]} of {samples[first]} samples" * some
    yield (
        f"{where}, all {report.unit} are 0{of}: they are equal, although their cosine and "
        "effective rank are 0 and their MAD is 1."
    )


def _stretch(report: "Report") -> tuple[list[tuple[str, float]], float | None]:
    """The longest run of layers whose effective ranks have one bound, and this bound."""
    ranks = dict(_ranks(report))
    if not report.bounds:
        return [*ranks.items()], None
    runs: list[tuple[list[tuple[str, float]], float]] = []
    for layer, bound in zip(report.layers, report.bounds):
        if layer not in ranks:
            continue
        if not runs or runs[-1][1] != bound:
            runs.append(([], bound))
        runs[-1][0].append((layer, ranks[layer]))
    return max(runs, key=lambda run: len(run[0]), default=([], None))


def _rank(report: "Report") -> Iterator[str]:
    """The effective ranks of layers with one bound, and the last one if it has another bound."""
    known, bound = _stretch(report)
    every, bounds = _ranks(report), dict(zip(report.layers, report.bounds))
    if len(every) < 2:
        return
    if len(known) < 2:
        ends = every[:: len(every) - 1]
        parts = (f"{number(v)} of at most {bounded(bounds[of])} after {of}" for of, v in ends)
        yield f"The effective rank is {' and '.join(parts)}."
        return
    (first, a), (last, b) = known[0], known[-1]
    most = f", of at most {bounded(bound)}" if bound else ""
    part = f", from {first} to {last}" if len(known) < len(every) else ""
    low, high = min(v for _, v in known), max(v for _, v in known)
    if max(a, b) >= CHANGE * min(a, b):
        verb = "falls" if b < a else "rises"
        said = f"{verb} from {number(a)} after {first} to {number(b)} after {last}{most}"
    elif number(low) == number(high):
        said = f"is {number(low)}{part}{most}"
    else:
        said = f"lies between {number(low)} and {number(high)}{part}{most}"
    end, v = every[-1]
    more = (
        "" if end == last else f"; after {end} it is {number(v)} of at most {bounded(bounds[end])}"
    )
    yield f"The effective rank {said}{more}."


def _where(report: "Report") -> Iterator[str]:
    known = _known(report, "cosine")
    if alike := [i for i, (_, v) in enumerate(known) if v >= ALIKE]:
        run = [i for i in alike if all(j in alike for j in range(alike[0], i + 1))]
        low = min(known[i][1] for i in run)
        first, last = known[run[0]][0], known[run[-1]][0]
        where = f"From {first} to {last}" if len(run) > 1 else f"After {first}"
        where = f"From {first} on" if run[-1] == len(known) - 1 else where
        guide = "cures" if report.unit == "nodes" else "transformers"
        yield f"{where}, the mean cosine of two {report.unit} is {number(low)} or more."
        yield f"What can help: docs/guides/{guide}.md."
        return
    ranks, _ = _stretch(report)
    jumps = [(max(a, b) / max(min(a, b), 1e-9), i) for i, ((_, a), (_, b)) in
             enumerate(zip(ranks, ranks[1:]))]  # fmt: skip
    if jumps and max(jumps)[0] >= JUMP:
        i = max(jumps)[1]
        yield (
            f"The largest change is at {ranks[i + 1][0]}: effective rank {number(ranks[i][1])} "
            f"before it, {number(ranks[i + 1][1])} after it."
        )
    if known and _spread(report) and not [*_across(report)]:
        most = number(max(v for _, v in known))
        yield f"In no layer is the mean cosine of two {report.unit} above {most}."


def _spread(report: "Report") -> bool:
    """Whether the effective rank is a tenth of its bound or more in all layers."""
    ranks, bounds = _known(report, "effective_rank"), dict(zip(report.layers, report.bounds))
    return bool(ranks and bounds) and all(v >= LOW * bounds[layer] for layer, v in ranks)


def _outliers(report: "Report") -> Iterator[str]:
    """Tokens of large norm, where they have much of the energy or change the rank."""
    shares, ranks = dict(_known(report, "largest_token_share")), dict(_ranks(report))
    others = dict(_known(report, "effective_rank_without_outliers"))
    long = [
        layer
        for layer, v in _known(report, "max_norm_ratio")
        if v > LONG and layer in shares
        if shares[layer] >= LARGE or _differ(ranks.get(layer), others.get(layer))
    ]
    if not long:
        return
    layer = max(long, key=lambda name: shares[name])
    several = f" (outliers in {len(long)} layers, the first {long[0]})" * (len(long) > 1)
    ratio = dict(_known(report, "max_norm_ratio"))[layer]
    one = "One node" if report.unit == "nodes" else "One token"
    said = (
        f"{one} carries {number(100 * shares[layer])} % of the energy after {layer}{several}, with "
        f"{number(ratio)} times the median norm"
    )
    if layer in others and layer in ranks:
        said += (
            f"; without such {report.unit} the effective rank there is {number(others[layer])} in "
            f"place of {number(ranks[layer])}"
        )
    yield f"{said}."


def _differ(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and max(a, b) >= CHANGE * min(a, b)


def _reference(report: "Report") -> Iterator[str]:
    own, _ = _stretch(report)
    if report.reference is None:
        if len(own) > 1 and own[-1][1] * CHANGE < own[0][1]:
            yield 'Whether training or the architecture lowers the rank, reference="random" tells.'
        return
    other, _ = _stretch(report.reference)
    if len(own) < 2 or len(other) < 2:
        return
    (_, a), (_, b) = other[0], other[-1]
    last, end = own[-1]
    alike = ", about the same" * (max(b, end) < CHANGE * min(b, end))
    here = "ends at" if last == report.layers[-1] else "has"
    after = "" if last == report.layers[-1] else f" after {last}"
    yield (
        f"{report.reference.model}: the effective rank goes from {number(a)} to {number(b)}"
        f"{after}, where this model {here} {number(end)}{alike}."
    )


def _across(report: "Report") -> Iterator[str]:
    cosine, rank = _known(report, "sample_cosine"), _known(report, "rankme")
    if cosine and rank and (cosine[-1][1] >= ALIKE or rank[-1][1] < 1.5):
        yield (
            f"{report.unit.title()} of different samples have a mean cosine of "
            f"{number(cosine[-1][1])} after {cosine[-1][0]}, and the mean {report.unit} of the "
            f"{report.samples} samples an effective "
            f"rank of {number(rank[-1][1])}: little of the input is left."
        )


def _gradient(report: "Report") -> Iterator[str]:
    if known := _known(report, "gradient_norm"):
        (first, a), (last, b) = known[0], known[-1]
        yield f"The norm of the gradient is {number(b)} at {last} and {number(a)} at {first}."


def _channel(report: "Report") -> Iterator[str]:
    known = _known(report, "largest_channel_share")
    if known and (largest := max(known, key=lambda of: of[1]))[1] >= SHARE:
        yield f"One channel carries {number(100 * largest[1])} % of the energy after {largest[0]}."


def _attention(report: "Report") -> Iterator[str]:
    known = _known(report, "attention_sink")
    if known and (largest := max(known, key=lambda of: of[1]))[1] >= SHARE:
        yield f"One token gets {number(100 * largest[1])} % of the attention in {largest[0]}."


def _norm(report: "Report") -> Iterator[str]:
    known = _known(report, "norm")
    if len(known) > 1 and 0 < known[-1][1] < SHRUNK * known[0][1]:
        yield f"The mean norm falls from {number(known[0][1])} to {number(known[-1][1])}."
