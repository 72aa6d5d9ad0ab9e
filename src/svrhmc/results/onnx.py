"""A fitted model as an ONNX graph, written from the document of `svrhmc.results.export`.

All numbers of the graph are float64. With φ (rows, coefficients) the standardised columns, z those that vary by a
group, and g the number of a row's level among its L levels (L itself for one that was not fitted),

    t = c + φm + Σ_j z_j m_{gj},        var t = Σ_k (φF + Σ_j z_j F_{gj})_k² + φ²d + Σ_j z_j² d_{gj} + [g = L] zᵀΣz,

where m, F and d are those of the document, and rows L of m_{g}, F_{g}, d_{g} are 0. The mean of y is
Σ_i wᵢ μ(t + zᵢ√var t) at the nodes and weights of the document. A row with a missing value, or a level of a category
that was not fitted, is NaN in every output.

Each column of the table is an input of its own, of one number or text for each row; columns without names are one
input X (rows, columns). ONNX has no missing text: in a column of texts "", "None", "nan" and "<NA>" are missing values,
unless they are levels.
"""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from svrhmc.core.errors import DataError, missing_package
from svrhmc.core.storage import write_bytes
from svrhmc.core.summaries import interval_ends
from svrhmc.results.base import PosteriorData
from svrhmc.results.export import PREDICTED, Document, Pieces, single_document
from svrhmc.tables.portable import Portable

OPSET, OPSET_ML, IR_VERSION = 18, 4, 9  # what onnxruntime 1.18, the oldest that is promised, reads
_MISSING_TEXTS = ("", "None", "nan", "<NA>")
_NEW, _MISSING = -1, -2  # codes in place of the number of a level
_FUNCTIONS = {name: name.capitalize() for name in ("abs", "exp", "log", "sqrt", "floor", "ceil", "sin", "cos", "tanh")}
_OPERATIONS = {
    "+": "Add", "*": "Mul", "-": "Sub", "/": "Div", "**": "Pow", "<": "Less", "<=": "LessOrEqual", "==": "Equal",
    "min": "Min", "max": "Max",
}  # fmt: skip
_COMPARISONS = ("<", "<=", "==")
MATRIX = "X"  # the name of the input with all columns, where they have no names
_LINKS = {"exp": "Exp", "logistic": "Sigmoid"}
Level = str | float


def to_onnx(posterior: PosteriorData, path: str | Path | None, level: float) -> bytes | Path:
    """The graph as bytes; where a path is given, the file that it was written to."""
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError:
        raise missing_package("onnx", "onnx", "posterior.to_onnx") from None
    content = _Graph(single_document(posterior)).model(*interval_ends(level))
    if path is None:
        return content
    write_bytes(Path(path), content)
    return Path(path)


class _Graph:
    """A graph under construction: methods add nodes, and return the name of the value that the nodes compute."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._memory: dict[str, str] = {}  # names of values, by the node or expression that computes them
        self.levels = _levels_by_column(document)

    def add_node(self, operation: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output, unless the graph already has this node."""
        from onnx import helper

        key = f"{operation}({', '.join(inputs)}; {sorted(attributes.items(), key=lambda item: item[0])})"
        if key not in self._memory:
            self._memory[key] = output = f"svrhmc:{len(self.nodes)}"
            self.nodes.append(helper.make_node(operation, list(inputs), [output], domain=domain, **attributes))
        return self._memory[key]

    def constant(self, value: object, kind: type = np.float64) -> str:
        """Add a constant array to the graph, unless it already has this array."""
        from onnx import numpy_helper

        array: Any = np.asarray(value, kind)
        key = f"{array.shape}{array.dtype}{array.tobytes()!r}"
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, f"svrhmc:constant {len(self.constants)}")
        name: str = self.constants[key].name
        return name

    def sum_of(self, values: list[str]) -> str:
        """The sum of some values."""
        return reduce(lambda a, b: self.add_node("Add", a, b), values)

    def columns_as_matrix(self, values: list[str]) -> str:
        """Several values (rows,) as the columns of one matrix (rows, values)."""
        columns = [self.add_node("Unsqueeze", one, self.constant([1], np.int64)) for one in values]
        return self.add_node("Concat", *columns, axis=1)

    def sum_along(self, matrix: str, axis: int) -> str:
        """The sum of a matrix along an axis, which is removed."""
        return self.add_node("ReduceSum", matrix, self.constant([axis], np.int64), keepdims=0)

    # Columns of a row

    def expression(self, e: Portable) -> str:
        """An expression of the document, (rows,)."""
        key = json.dumps(e)
        if key not in self._memory:
            self._memory[key] = self._expression(e)
        return self._memory[key]

    def _expression(self, e: Portable) -> str:
        if not isinstance(e, list):
            return self.add_node("Expand", self.constant([float(e)]), self._shape())
        kind, *parts = e
        if kind == "column":
            if self._is_text(parts[0]):
                raise DataError(f"the column {parts[0]!r} has texts and numbers among its values: make it one of them.")
            return str(parts[0])
        if kind == "level":
            place = self.levels[parts[0]].index(_level(parts[1]))
            return self._as_number(self.add_node("Equal", self.level_code(parts[0]), self.constant(place, np.int64)))
        if kind == "pieces":
            return self._piecewise(Pieces(*parts))
        inner = [self.expression(part) for part in parts]
        if kind in ("+", "*"):
            return reduce(lambda a, b: self.add_node(_OPERATIONS[kind], a, b), inner)
        if kind == "if":
            condition = self.add_node("Not", self.add_node("Equal", inner[0], self.constant(0.0)))
            return self.add_node("Where", condition, *inner[1:])
        if kind == "tan":  # which onnxruntime lacks in float64
            return self.add_node("Div", self.add_node("Sin", *inner), self.add_node("Cos", *inner))
        if kind in _OPERATIONS:
            out = self.add_node(_OPERATIONS[kind], *inner)
            return self._as_number(out) if kind in _COMPARISONS else out
        return self.add_node(_FUNCTIONS[kind], *inner)

    def _shape(self) -> str:
        if self.document["matrix"]:
            return self.add_node("Shape", MATRIX, end=1)
        return self.add_node("Shape", self.document["variables"][0]["name"])

    def _as_number(self, condition: str) -> str:
        """1 where a condition holds, else 0."""
        from onnx import TensorProto

        return self.add_node("Cast", condition, to=TensorProto.DOUBLE)

    def _piecewise(self, pieces: Pieces) -> str:
        """Piecewise polynomials: the number of a row's piece by counting the knots below it, the coefficients of that
        piece from a table, and Horner's rule.
        """
        from onnx import TensorProto

        _, knots, polynomials, below, above = pieces
        x, last = self.expression(pieces.x), len(polynomials) - 1
        count = self._as_number(self.add_node("GreaterOrEqual", x, self.constant(knots[0])))
        for knot in knots[1:-1]:
            count = self.add_node(
                "Add", count, self._as_number(self.add_node("GreaterOrEqual", x, self.constant(knot)))
            )
        beyond = self._as_number(self.add_node("Greater", x, self.constant(knots[-1])))
        piece = self.add_node("Cast", self.add_node("Add", count, beyond), to=TensorProto.INT64)
        none = [np.nan] * len(polynomials[0])
        table = [below or none, *polynomials, above or none]
        width = max(map(len, table))
        coefficients = np.array([row + [0.0] * (width - len(row)) for row in table])
        places = [0, *range(last + 1), last]
        left, length = np.array(knots)[places], np.diff(knots)[places]
        from_left = self.add_node("Sub", x, self._gather(left, piece))
        s = self.add_node("Div", from_left, self._gather(length, piece))
        out = self._gather(coefficients[:, -1], piece)
        for power in range(width - 2, -1, -1):
            out = self.add_node("Add", self._gather(coefficients[:, power], piece), self.add_node("Mul", s, out))
        return out

    def _gather(self, table: object, index: str) -> str:
        """Rows of a constant table, by their numbers."""
        return self.add_node("Gather", self.constant(table), index, axis=0)

    # Levels

    def _is_text(self, name: str) -> bool:
        return name in self.levels and isinstance(self.levels[name][0], str)

    def level_code(self, name: str) -> str:
        """The number of each row's level in a column, or `_NEW` or `_MISSING`."""
        from onnx import TensorProto, helper

        levels = self.levels[name]
        places = list(range(len(levels)))
        if self._is_text(name):
            keys = [*levels, *(text for text in _MISSING_TEXTS if text not in levels)]
            values = places + [_MISSING] * (len(keys) - len(levels))
            return self.add_node(
                "LabelEncoder", name, domain="ai.onnx.ml", keys_strings=keys, values_int64s=values, default_int64=_NEW
            )

        def tensor(numbers: list[Any]) -> Any:
            return helper.make_tensor(f"levels of {name}", TensorProto.DOUBLE, [len(numbers)], numbers)

        plain = self.add_node("Add", name, self.constant(0.0))  # −0 becomes 0
        level_code = self.add_node(
            "LabelEncoder", plain, domain="ai.onnx.ml", keys_tensor=tensor([float(one) for one in levels]),
            values_tensor=tensor(places), default_tensor=tensor([_NEW]),
        )  # fmt: skip
        level_code = self.add_node("Where", self.add_node("IsNaN", plain), self.constant(float(_MISSING)), level_code)
        return self.add_node("Cast", level_code, to=TensorProto.INT64)

    def group_index(self, group: Document) -> str:
        """The number of each row's level of a group; for levels that were not fitted the number of fitted levels."""
        names, levels = group["columns"], [one["level"] for one in group["levels"]]
        sizes = [len(self.levels[name]) for name in names]
        keys = [0] * len(levels)
        combined = smallest_code = ""
        for j, name in enumerate(names):
            level_code = self.level_code(name)
            keys = [
                key * sizes[j] + self.levels[name].index(_level(values[j]))
                for key, values in zip(keys, levels, strict=True)
            ]
            shifted = self.add_node("Mul", combined, self.constant(sizes[j], np.int64)) if combined else ""
            combined = self.add_node("Add", shifted, level_code) if combined else level_code
            smallest_code = self.add_node("Min", smallest_code, level_code) if smallest_code else level_code
        fitted = self.add_node("GreaterOrEqual", smallest_code, self.constant(0, np.int64))
        combined = self.add_node("Where", fitted, combined, self.constant(_NEW, np.int64))
        return self.add_node(
            "LabelEncoder", combined, domain="ai.onnx.ml", keys_int64s=keys, values_int64s=list(range(len(keys))),
            default_int64=len(keys),
        )  # fmt: skip

    def is_usable(self) -> str:
        """Whether a row has all values that its prediction needs."""
        tests: list[str] = []
        if self.document["matrix"]:
            return self.add_node("Not", self.add_node("IsNaN", self.sum_along(MATRIX, 1)))
        for variable in self.document["variables"]:
            if variable["name"] not in self.levels:
                tests.append(self.add_node("Not", self.add_node("IsNaN", variable["name"])))
                continue
            level_code = self.level_code(variable["name"])
            tests.append(self.add_node("Greater", level_code, self.constant(_MISSING, np.int64)))
            if variable["levels"]:  # which come first
                tests.append(self.add_node("Greater", level_code, self.constant(_NEW, np.int64)))
                tests.append(self.add_node("Less", level_code, self.constant(len(variable["levels"]), np.int64)))
        return reduce(lambda a, b: self.add_node("And", a, b), tests)

    # Predictions

    def model(self, low: float, high: float) -> bytes:
        """The whole graph as bytes."""
        from onnx import TensorProto, checker, helper

        if not self.document["variables"]:
            raise DataError("a model of an intercept alone has no columns, which ONNX would take the rows from.")
        outputs = self.outputs(low, high)
        is_usable = self.add_node("And", self.is_usable(), self._is_finite(outputs["predicted_linear"]))
        nothing = self.constant(np.nan)
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Where", [is_usable, value, nothing], [name]))
        kinds = {True: TensorProto.STRING, False: TensorProto.DOUBLE}
        inputs = [
            helper.make_tensor_value_info(one["name"], kinds[self._is_text(one["name"])], ["rows"])
            for one in self.document["variables"]
        ]
        if self.document["matrix"]:
            shape: list[str | int | None] = ["rows", len(self.document["variables"])]
            inputs = [helper.make_tensor_value_info(MATRIX, TensorProto.DOUBLE, shape)]
        graph = helper.make_graph(
            self.nodes, "svrhmc model", inputs,
            [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows"]) for name in outputs],
            initializer=list(self.constants.values()), doc_string=self.document["formula"],
        )  # fmt: skip
        versions = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", OPSET_ML)]
        model = helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="svrhmc",
            producer_version=self.document["svrhmc"],
        )  # fmt: skip
        metadata = {name: self.document[name] for name in ("formula", "response", "family", "classes", "card")}
        helper.set_model_props(model, {name: json.dumps(value, ensure_ascii=False) for name, value in metadata.items()})
        checker.check_model(model)
        content: bytes = model.SerializeToString()
        return content

    def outputs(self, low: float, high: float) -> dict[str, str]:
        """The value of each output by name, before rows that cannot be used are set to NaN."""
        document = self.document
        (predictor,) = document["predictors"]
        coefficients = predictor["coefficients"]
        means = [self.constant(predictor["constant"])]
        if document["offset"]:
            means.append(document["offset"])
        if document["exposure"]:
            positive = self.add_node("Greater", document["exposure"], self.constant(0.0))
            exposure = self.add_node("Where", positive, document["exposure"], self.constant(np.nan))
            means.append(self.add_node("Log", exposure))
        projections: list[str] = []
        variances: list[str] = []
        if coefficients:
            columns = self.columns(coefficients)
            centred = self.add_node("Sub", columns, self.constant([[one["centre"] for one in coefficients]]))
            phi = self.add_node("Div", centred, self.constant([[one["scale"] for one in coefficients]]))
            mean, factor, remainder = _stack_parameters(coefficients)
            means.append(self.sum_along(self.add_node("Mul", phi, self.constant(mean[None])), 1))
            projections.append(self.add_node("MatMul", phi, self.constant(factor)))
            if remainder.any():
                weighted = self.add_node("Mul", self.add_node("Mul", phi, phi), self.constant(remainder[None]))
                variances.append(self.sum_along(weighted, 1))
        for group in document["groups"]:
            z = self.columns_as_matrix([self.expression(one) for one in group["varying"]])
            index = self.group_index(group)
            by_level = [_stack_parameters(one["effects"]) for one in group["levels"]]
            mean, factor, remainder = (
                np.stack([*part, np.zeros_like(part[0])]) for part in zip(*by_level, strict=True)
            )
            means.append(self.sum_along(self.add_node("Mul", z, self._gather(mean, index)), 1))
            wide = self.add_node("Unsqueeze", z, self.constant([2], np.int64))
            projections.append(self.sum_along(self.add_node("Mul", wide, self._gather(factor, index)), 1))
            new = self.add_node("MatMul", z, self.constant(group["new"]))
            new = self.sum_along(self.add_node("Mul", new, z), 1)
            unfitted = self.add_node("Equal", index, self.constant(len(by_level), np.int64))
            variances.append(self.add_node("Where", unfitted, new, self.constant(0.0)))
            square = self.add_node("Mul", z, z)
            variances.append(self.sum_along(self.add_node("Mul", square, self._gather(remainder, index)), 1))
        linear, direction = self.sum_of(means), self.sum_of(projections)
        variances.append(self.sum_along(self.add_node("Mul", direction, direction), 1))
        sd = self.add_node("Sqrt", self.sum_of(variances))
        outputs = dict(zip(PREDICTED, (linear, sd), strict=False))
        if (link := document["inverse_link"]) == "":
            return outputs
        rule = document["quadrature"]
        column = [self.add_node("Unsqueeze", one, self.constant([1], np.int64)) for one in (linear, sd)]
        points = self.add_node("Add", column[0], self.add_node("Mul", column[1], self.constant([rule["nodes"]])))
        weighted = self.add_node("Mul", self.inverse_link(link, points), self.constant([rule["weights"]]))
        outputs["predicted_mean"] = linear if link == "identity" else self.sum_along(weighted, 1)
        for name, p in (("predicted_lower", low), ("predicted_upper", high)):
            away = self.add_node("Mul", sd, self.constant(NormalDist().inv_cdf(p)))
            outputs[name] = self.inverse_link(link, self.add_node("Add", linear, away))
        return outputs

    def columns(self, coefficients: list[Document]) -> str:
        """The columns that coefficients multiply, (rows, coefficients)."""
        if not self.document["matrix"]:
            return self.columns_as_matrix([self.expression(one["expression"]) for one in coefficients])
        ones = [self.expression(one["expression"]) for one in coefficients if one["expression"] == 1.0]
        return self.add_node("Concat", self.columns_as_matrix(ones), MATRIX, axis=1) if ones else MATRIX

    def inverse_link(self, link: str, t: str) -> str:
        """The inverse link μ at values t."""
        return t if link == "identity" else self.add_node(_LINKS[link], t)

    def _is_finite(self, value: str) -> str:
        return self.add_node("Less", self.add_node("Abs", value), self.constant(np.inf))


def _stack_parameters(parameters: list[Document]) -> tuple[Any, Any, Any]:
    """The means, rows of F and entries of d of some parameters, as arrays."""
    return tuple(np.array([parameter[field] for parameter in parameters]) for field in ("mean", "factor", "remainder"))  # type: ignore[return-value]


def _levels_by_column(document: Document) -> dict[str, list[Level]]:
    """The levels of each column that has some: of categories, of groups, and those that expressions compare with."""
    levels: dict[str, list[Level]] = {}

    def add(name: str, values: list[object]) -> None:
        levels[name] = list(dict.fromkeys([*levels.get(name, []), *map(_level, values)]))

    def add_levels_of(e: Portable) -> None:
        if isinstance(e, list) and e[0] == "level":
            add(e[1], [e[2]])
        elif isinstance(e, list):
            for part in e:
                add_levels_of(part)

    for variable in document["variables"]:
        if variable["levels"]:
            add(variable["name"], variable["levels"])
    for group in document["groups"]:
        for j, name in enumerate(group["columns"]):
            add(name, [one["level"][j] for one in group["levels"]])
        add_levels_of(group["varying"])
    for one in document["predictors"][0]["coefficients"]:
        add_levels_of(one["expression"])
    for name, values in levels.items():
        if len({type(value) for value in values}) > 1:
            raise DataError(
                f"the levels of {name!r} are texts and numbers, and an input of ONNX has only one of them: recode it."
            )
    return levels


def _level(value: object) -> Level:
    """A level as the input has it: a text or a float."""
    return value if isinstance(value, str) else float(value)  # type: ignore[arg-type]
