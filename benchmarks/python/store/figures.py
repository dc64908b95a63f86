"""What was measured, for people and for programs."""

import statistics

UNITS = {"us": "RTT", "GB/s": "memcpy"}


class Figures:
    """Samples by row and column, in the order in which they came."""

    def __init__(self, columns):
        self.columns = columns
        self.cells = {}

    def add(self, row, column, unit, value, reference=None):
        cell = self.cells.setdefault((row, unit), {}).setdefault(column, {"values": [], "ratios": []})
        cell["values"].append(value)
        if reference:
            cell["ratios"].append(value / reference)

    def json(self):
        return [
            {"row": row, "unit": unit, "column": column, "median": statistics.median(cell["values"]), **cell}
            for (row, unit), cells in self.cells.items()
            for column, cell in cells.items()
        ]

    def markdown(self):
        table = [["", *self.columns]]
        for (row, unit), cells in self.cells.items():
            table.append([f"{row}, {unit}", *(_cell(cells.get(column)) for column in self.columns)])
        widths = [max(map(len, column)) for column in zip(*table)]
        lines = []
        for line in table:
            first, *rest = (cell.rjust(width) for cell, width in zip(line, widths))
            lines.append(f"| {' | '.join([line[0].ljust(widths[0]), *rest])} |")
        rule = [f"{'-' * (width + 1)}{'-' if at == 0 else ':'}" for at, width in enumerate(widths)]
        lines.insert(1, f"|{'|'.join(rule)}|")
        return "\n".join(lines)


def _cell(cell):
    if cell is None:
        return ""
    text = _number(statistics.median(cell["values"]))
    return text + (f" ({_number(statistics.median(cell['ratios']))})" if cell["ratios"] else "")


def _number(value):
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
