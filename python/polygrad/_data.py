"""Training data as lists of arrays: the inputs in order, followed by the target."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any


def plain(value: Any) -> Any:
    """Converts a NumPy number, or an array of them, to what JSON supports."""
    return value.tolist() if hasattr(value, "tolist") else float(value)


def given(x: Any, y: Any, names: Sequence[str], known: Columns) -> list[Any] | Batches:
    """Arrays whose rows are examples, or batches of them."""
    if y is None:
        return Batches(x, lambda batch: pair(batch, names, known))
    if is_column(y):
        return known.split(x, y) if column_names(x) else Batches(x, lambda table: known.split(table, y))
    return [*inputs(x, names, known), y]


def is_column(y: Any) -> bool:
    """Whether y names a column: a text, or a number as in a table without names."""
    from numbers import Integral

    return isinstance(y, (str, Integral))


def inputs(x: Any, names: Sequence[str], known: Columns) -> list[Any]:
    if isinstance(x, dict):
        if set(x) != set(names):
            raise ValueError(f"the inputs are {', '.join(map(str, x))}, and the model takes {', '.join(names)}")
        return [x[name] for name in names]
    if len(names) > 1 and isinstance(x, (list, tuple)):
        return list(x)
    return [known.numbers(x) if column_names(x) else x]


def pair(batch: Any, names: Sequence[str], known: Columns) -> list[Any]:
    if not isinstance(batch, (list, tuple)) or len(batch) != 2:
        kind = type(batch).__name__
        if isinstance(batch, (list, tuple)):
            kind += f" of length {len(batch)}"
        raise TypeError(f'a batch is a tuple of inputs and targets, and this is a {kind}; of tables, give y="column"')
    return [*inputs(batch[0], names, known), batch[1]]


def column_names(table: Any) -> list[str] | None:
    """The column names of a table of pandas or Arrow; None for other objects."""
    if hasattr(table, "column_names"):
        return list(table.column_names)
    if hasattr(table, "columns") and (hasattr(table, "__arrow_c_stream__") or hasattr(table, "__dataframe__")):
        return list(table.columns)
    return None


class Columns:
    """The columns that a model learns from: those of the first table. Later tables may have them in another order."""

    def __init__(self, names: list[Any] | None = None) -> None:
        self.names = names

    def split(self, table: Any, target: str | int) -> list[Any]:
        """All columns except the target as a matrix, and the target."""
        names = column_names(table)
        if names is None:
            kind = type(table).__name__
            raise TypeError(f"y={target!r} names a column, and a {kind} has none: give a table of pandas or Arrow")
        if target not in names:
            raise ValueError(f"there is no column {target!r}, but {', '.join(map(str, names))}")
        return [self.numbers(table, target), column(table, target)]

    def numbers(self, table: Any, without: str | int | None = None) -> Any:
        import numpy as np

        names = column_names(table) or []
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"two columns are called {twice[0]!r}: rename one of them")
        names = [name for name in names if name != without]
        if not names:
            raise ValueError("the table has no columns to learn from")
        if self.names is None:
            self.names = names
        if set(names) != set(self.names):
            found, known = (", ".join(map(str, some)) for some in (names, self.names))
            raise ValueError(f"the columns are {found}, and the model has learnt from {known}: give the same ones")
        return np.stack([column(table, name) for name in self.names], axis=1, dtype=np.float32, casting="unsafe")


def column(table: Any, name: str | int) -> Any:
    import numpy as np

    found = np.asarray(table[name])
    if found.dtype.kind not in "biuf":
        raise ValueError(
            f"the column {name!r} is {found.dtype}, and a network takes numbers: fill missing values if it has any, "
            "and make numbers of words, as by pandas.get_dummies or pandas.factorize"
        )
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ValueError(f"the column {name!r} has missing or infinite values: fill them, or leave these rows out")
    return found


class Batches:
    """An iterable of batches."""

    def __init__(self, source: Any, made: Callable[[Any], list[Any]]) -> None:
        self.source, self.made, self.used = source, made, False
        if not hasattr(source, "__iter__"):
            kind = type(source).__name__
            raise TypeError(f"a {kind} gives no batches; give inputs and targets, fit(x, y), or an iterable of (x, y)")

    def length(self) -> int | None:
        return len(self.source) if hasattr(self.source, "__len__") else None

    def __iter__(self) -> Iterator[list[Any]]:
        batches = iter(self.source)
        if batches is self.source:
            if self.used:
                raise ValueError(
                    "the batches can be iterated over once, and are needed again: give a list of them, or a class "
                    "whose __iter__ begins anew"
                )
            self.used = True
        is_empty = True
        for batch in batches:
            is_empty = False
            yield self.made(batch)
        if is_empty:
            raise ValueError("the iterable has given no batch")
