"""Runs as text for a terminal: where views disagree comes first. Forbidden here: running and measuring."""

from collections.abc import Iterator, Sequence

from hack.scenario.presets import PRESETS
from hack.scenario.summary import Compared, Summary
from hack.scenario.views import Tokens
from pharos.sim.result import Range


def text(run: Summary) -> str:
    """One run."""
    return "\n".join(_lines(run))


def _lines(run: Summary) -> Iterator[str]:
    yield f"== {run.preset} through {run.way}, seed {run.seed}"
    yield f"claim: {PRESETS[run.preset].claim}"
    yield ""
    if run.disagreements:
        yield "THE VIEWS DISAGREE"
        yield from (f"  - {one}" for one in run.disagreements)
    else:
        yield "the views agree"
    yield ""
    yield from (f"  {name:<22} {_number(value)}" for name, value in run.figures.items())
    if run.clients.first_error:
        yield f"  first error: {run.clients.first_error}"
    yield ""
    yield from _table(_views(run))
    if run.pharos is not None:
        yield ""
        yield from _pharos(run)
    yield ""
    yield "  what the engines showed of themselves"
    for name, one in run.calibration.items():
        speed = "unknown" if one.prefill_s_per_token is None else f"{one.prefill_s_per_token * 1000:.2f} ms"
        company = ", ".join(f"{beside} beside {ttft:.2f} s" for beside, ttft in one.ttft_s_by_company.items())
        yield f"    {name}: {one.requests} requests, prompt token {speed}; TTFT with {company}"


def _views(run: Summary) -> Iterator[list[str]]:
    yield ["view", "replies", "prompt tokens", "cached", "reply tokens"]
    yield ["clients", str(run.clients.ok), *_cells(run.clients.tokens)]
    if run.pharos is not None:
        yield ["Pharos", str(run.pharos.by_status.get("200", 0)), *_cells(run.pharos.tokens)]
    if run.engines:
        yield ["engines", "–", *_cells(sum(run.engines.values(), Tokens()))]
        for name, tokens in run.engines.items():
            yield [f"  {name}", "–", *_cells(tokens)]


def _cells(tokens: Tokens) -> list[str]:
    return [str(tokens.prompt), str(tokens.cached), str(tokens.reply)]


def _pharos(run: Summary) -> Iterator[str]:
    told = run.pharos
    if told is None:
        return
    statuses = ", ".join(f"{count} × {status}" for status, count in sorted(told.by_status.items()))
    yield f"  Pharos: {statuses or 'no request'}; {told.retries} decisions on retries"
    yield f"    wait {_seconds(told.wait_s)} and TTFT from dispatch {_seconds(told.ttft_s)} (means); " + (
        "estimates were used throughout" if not told.fallen_back else f"{told.fallen_back} models by least-load"
    )
    predicted = ", ".join(f"{outcome} {count}" for outcome, count in sorted(told.predictions.items()))
    yield f"    cached prompts foreseen: {predicted or 'none'}"


def _table(rows: Iterator[list[str]]) -> list[str]:
    table = list(rows)
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    return ["  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]


def compared(found: Sequence[Compared], one: str, other: str) -> str:
    """Two sets of runs beside each other."""
    lines: list[str] = []
    preset = ""
    for row in found:
        if row.preset != preset:
            preset = row.preset
            lines += ["", f"== {preset}: {one} | {other} | difference, 95 % interval over seeds in common"]
        lines.append(f"  {row.figure:<22} {_mean(row.one):>12} | {_mean(row.other):>12} | {_by(row.by)}")
    return "\n".join(lines).strip("\n")


def _by(by: Range | None) -> str:
    if by is None:
        return "no seed in common"
    sign = "more" if by.low > 0 else "less" if by.high < 0 else "within chance"
    return f"{by.mean:+.3g} ({by.low:+.3g} to {by.high:+.3g}) {sign}"


def _mean(one: Range) -> str:
    return _number(one.mean)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f} s"
