"""A fitted model as an ONNX graph, written from the document of `svrhmc.results.export`.

All numbers of the graph are float64. With φ (rows, coefficients) the standardised columns, z those that vary by a
group, and g the number of a row's level among its L levels (L itself for one that was not fitted),

    t = c + φm + Σ_j z_j m_{gj},        var t = Σ_k (φF + Σ_j z_j F_{gj})_k² + φ²d + Σ_j z_j² d_{gj} + [g = L] zᵀΣz,

where m, F and d are those of the document, and rows L of m_{g}, F_{g}, d_{g} are 0. The mean of y is
Σ_i wᵢ μ(t + zᵢ√var t) at the nodes and weights of the document. A row with a missing value, or a level of a category
that was not fitted, is NaN in every output.

Each column of the table is an input of its own, of one number or text for each row; columns without names are one
input X (rows, columns). ONNX has no missing text: of a
column of texts "", "None", "nan" and "<NA>" are missing, unless they are levels.
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
from svrhmc.results.export import PREDICTED, Document, single_document
from svrhmc.tables.portable import Portable

OPSET, OPSET_ML, IR_VERSION = 18, 4, 9  # what onnxruntime 1.18, the oldest that is promised, reads
_MISSING_TEXTS = ("", "None", "nan", "<NA>")
_NEW, _MISSING = -1, -2  # in the place of a level's number
_FUNCTIONS = {name: name.capitalize() for name in ("abs", "exp", "log", "sqrt", "floor", "ceil", "sin", "cos", "tanh")}
_OPERATIONS = {
    "+": "Add", "*": "Mul", "-": "Sub", "/": "Div", "**": "Pow", "<": "Less", "<=": "LessOrEqual", "==": "Equal",
    "min": "Min", "max": "Max",
}  # fmt: skip
_COMPARISONS = ("<", "<=", "==")
MATRIX = "X"  # the input that has all columns, where they have no names
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
    """Nodes in the making; a method gives the name of the value that it computes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._memory: dict[str, str] = {}  # by expression, the value that has it
        self.levels = _levels_by_column(document)

    def apply(self, operation: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node with one output; the same node is made once."""
        from onnx import helper

        key = f"{operation}({', '.join(inputs)}; {sorted(attributes.items(), key=lambda item: item[0])})"
        if key not in self._memory:
            self._memory[key] = output = f"svrhmc:{len(self.nodes)}"
            self.nodes.append(helper.make_node(operation, list(inputs), [output], domain=domain, **attributes))
        return self._memory[key]

    def constant(self, value: object, kind: type = np.float64) -> str:
        """An array of the graph."""
        from onnx import numpy_helper

        array: Any = np.asarray(value, kind)
        key = f"{array.shape}{array.dtype}{array.tobytes()!r}"
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(array, f"svrhmc:constant {len(self.constants)}")
        name: str = self.constants[key].name
        return name

    def total(self, values: list[str]) -> str:
        """The sum of some values."""
        return reduce(lambda a, b: self.apply("Add", a, b), values)

    def beside(self, values: list[str]) -> str:
        """Values (rows,) as a matrix (rows, values)."""
        columns = [self.apply("Unsqueeze", one, self.constant([1], np.int64)) for one in values]
        return self.apply("Concat", *columns, axis=1)

    def summed(self, matrix: str, axis: int) -> str:
        """The sum along an axis, which is left out."""
        return self.apply("ReduceSum", matrix, self.constant([axis], np.int64), keepdims=0)

    # Columns of a row

    def expression(self, e: Portable) -> str:
        """An expression of the document, (rows,)."""
        key = json.dumps(e)
        if key not in self._memory:
            self._memory[key] = self._expression(e)
        return self._memory[key]

    def _expression(self, e: Portable) -> str:
        if not isinstance(e, list):
            return self.apply("Expand", self.constant([float(e)]), self._shape())
        kind, *parts = e
        if kind == "column":
            if self._is_text(parts[0]):
                raise DataError(f"the column {parts[0]!r} has texts and numbers among its values: make it one of them.")
            return str(parts[0])
        if kind == "level":
            place = self.levels[parts[0]].index(_level(parts[1]))
            return self._number(self.apply("Equal", self.code(parts[0]), self.constant(place, np.int64)))
        if kind == "pieces":
            return self._pieces(*parts)
        inner = [self.expression(part) for part in parts]
        if kind in ("+", "*"):
            return reduce(lambda a, b: self.apply(_OPERATIONS[kind], a, b), inner)
        if kind == "if":
            condition = self.apply("Not", self.apply("Equal", inner[0], self.constant(0.0)))
            return self.apply("Where", condition, *inner[1:])
        if kind == "tan":  # which onnxruntime lacks in float64
            return self.apply("Div", self.apply("Sin", *inner), self.apply("Cos", *inner))
        if kind in _OPERATIONS:
            out = self.apply(_OPERATIONS[kind], *inner)
            return self._number(out) if kind in _COMPARISONS else out
        return self.apply(_FUNCTIONS[kind], *inner)

    def _shape(self) -> str:
        if self.document["matrix"]:
            return self.apply("Shape", MATRIX, end=1)
        return self.apply("Shape", self.document["variables"][0]["name"])

    def _number(self, condition: str) -> str:
        """1 where a condition holds, else 0."""
        from onnx import TensorProto

        return self.apply("Cast", condition, to=TensorProto.DOUBLE)

    def _pieces(
        self,
        x: Portable,
        knots: list[float],
        polynomials: list[list[float]],
        below: list[float] | None,
        above: list[float] | None,
    ) -> str:
        """The number of a row's piece by counting knots, its coefficients from a table, and Horner's rule in s."""
        from onnx import TensorProto

        at, last = self.expression(x), len(polynomials) - 1
        count = self._number(self.apply("GreaterOrEqual", at, self.constant(knots[0])))
        for knot in knots[1:-1]:
            count = self.apply("Add", count, self._number(self.apply("GreaterOrEqual", at, self.constant(knot))))
        beyond = self._number(self.apply("Greater", at, self.constant(knots[-1])))
        piece = self.apply("Cast", self.apply("Add", count, beyond), to=TensorProto.INT64)
        none = [np.nan] * len(polynomials[0])
        table = [below or none, *polynomials, above or none]
        width = max(map(len, table))
        coefficients = np.array([row + [0.0] * (width - len(row)) for row in table])
        places = [0, *range(last + 1), last]
        left, length = np.array(knots)[places], np.diff(knots)[places]
        from_left = self.apply("Sub", at, self._picked(left, piece))
        s = self.apply("Div", from_left, self._picked(length, piece))
        out = self._picked(coefficients[:, -1], piece)
        for power in range(width - 2, -1, -1):
            out = self.apply("Add", self._picked(coefficients[:, power], piece), self.apply("Mul", s, out))
        return out

    def _picked(self, table: object, index: str) -> str:
        """Rows of a table by their numbers."""
        return self.apply("Gather", self.constant(table), index, axis=0)

    # Levels

    def _is_text(self, name: str) -> bool:
        return name in self.levels and isinstance(self.levels[name][0], str)

    def code(self, name: str) -> str:
        """The number of the level of each row, `_NEW` or `_MISSING`."""
        from onnx import TensorProto, helper

        levels = self.levels[name]
        places = list(range(len(levels)))
        if self._is_text(name):
            keys = [*levels, *(text for text in _MISSING_TEXTS if text not in levels)]
            values = places + [_MISSING] * (len(keys) - len(levels))
            return self.apply(
                "LabelEncoder", name, domain="ai.onnx.ml", keys_strings=keys, values_int64s=values, default_int64=_NEW
            )

        def tensor(numbers: list[Any]) -> Any:
            return helper.make_tensor(f"levels of {name}", TensorProto.DOUBLE, [len(numbers)], numbers)

        plain = self.apply("Add", name, self.constant(0.0))  # −0 becomes 0
        code = self.apply(
            "LabelEncoder", plain, domain="ai.onnx.ml", keys_tensor=tensor([float(one) for one in levels]),
            values_tensor=tensor(places), default_tensor=tensor([_NEW]),
        )  # fmt: skip
        code = self.apply("Where", self.apply("IsNaN", plain), self.constant(float(_MISSING)), code)
        return self.apply("Cast", code, to=TensorProto.INT64)

    def group_index(self, group: Document) -> str:
        """The number of the level of each row, and the number of levels for one that was not fitted."""
        names, known = group["columns"], [one["level"] for one in group["levels"]]
        sizes = [len(self.levels[name]) for name in names]
        keys = [0] * len(known)
        combined = known_code = ""
        for j, name in enumerate(names):
            code = self.code(name)
            keys = [
                key * sizes[j] + self.levels[name].index(_level(values[j]))
                for key, values in zip(keys, known, strict=True)
            ]
            shifted = self.apply("Mul", combined, self.constant(sizes[j], np.int64)) if combined else ""
            combined = self.apply("Add", shifted, code) if combined else code
            known_code = self.apply("Min", known_code, code) if known_code else code
        fitted = self.apply("GreaterOrEqual", known_code, self.constant(0, np.int64))
        combined = self.apply("Where", fitted, combined, self.constant(_NEW, np.int64))
        return self.apply(
            "LabelEncoder", combined, domain="ai.onnx.ml", keys_int64s=keys, values_int64s=list(range(len(keys))),
            default_int64=len(keys),
        )  # fmt: skip

    def usable(self) -> str:
        """Whether a row has all that it needs."""
        tests: list[str] = []
        if self.document["matrix"]:
            return self.apply("Not", self.apply("IsNaN", self.summed(MATRIX, 1)))
        for one in self.document["variables"]:
            if one["name"] not in self.levels:
                tests.append(self.apply("Not", self.apply("IsNaN", one["name"])))
                continue
            code = self.code(one["name"])
            tests.append(self.apply("Greater", code, self.constant(_MISSING, np.int64)))
            if one["levels"]:  # which come first
                tests.append(self.apply("Greater", code, self.constant(_NEW, np.int64)))
                tests.append(self.apply("Less", code, self.constant(len(one["levels"]), np.int64)))
        return reduce(lambda a, b: self.apply("And", a, b), tests)

    # Predictions

    def model(self, low: float, high: float) -> bytes:
        """The whole graph as bytes."""
        from onnx import TensorProto, checker, helper

        if not self.document["variables"]:
            raise DataError("a model of an intercept alone has no columns, which ONNX would take the rows from.")
        outputs = self.outputs(low, high)
        usable = self.apply("And", self.usable(), self._finite(outputs["predicted_linear"]))
        nothing = self.constant(np.nan)
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Where", [usable, value, nothing], [name]))
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
        made = helper.make_model(
            graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="svrhmc",
            producer_version=self.document["svrhmc"],
        )  # fmt: skip
        told = {name: self.document[name] for name in ("formula", "response", "family", "classes", "card")}
        helper.set_model_props(made, {name: json.dumps(value, ensure_ascii=False) for name, value in told.items()})
        checker.check_model(made)
        content: bytes = made.SerializeToString()
        return content

    def outputs(self, low: float, high: float) -> dict[str, str]:
        """The values of each output by its name; NaN is not yet put where rows cannot be used."""
        document = self.document
        (predictor,) = document["predictors"]
        coefficients = predictor["coefficients"]
        means = [self.constant(predictor["constant"])]
        if document["offset"]:
            means.append(document["offset"])
        if document["exposure"]:
            positive = self.apply("Greater", document["exposure"], self.constant(0.0))
            exposure = self.apply("Where", positive, document["exposure"], self.constant(np.nan))
            means.append(self.apply("Log", exposure))
        along: list[str] = []
        variances: list[str] = []
        if coefficients:
            columns = self.columns(coefficients)
            centred = self.apply("Sub", columns, self.constant([[one["centre"] for one in coefficients]]))
            phi = self.apply("Div", centred, self.constant([[one["scale"] for one in coefficients]]))
            mean, factor, remainder = _parameters(coefficients)
            means.append(self.summed(self.apply("Mul", phi, self.constant(mean[None])), 1))
            along.append(self.apply("MatMul", phi, self.constant(factor)))
            if remainder.any():
                weighted = self.apply("Mul", self.apply("Mul", phi, phi), self.constant(remainder[None]))
                variances.append(self.summed(weighted, 1))
        for group in document["groups"]:
            z = self.beside([self.expression(one) for one in group["varying"]])
            index = self.group_index(group)
            by_level = [_parameters(one["effects"]) for one in group["levels"]]
            mean, factor, remainder = (
                np.stack([*part, np.zeros_like(part[0])]) for part in zip(*by_level, strict=True)
            )
            means.append(self.summed(self.apply("Mul", z, self._picked(mean, index)), 1))
            wide = self.apply("Unsqueeze", z, self.constant([2], np.int64))
            along.append(self.summed(self.apply("Mul", wide, self._picked(factor, index)), 1))
            new = self.apply("MatMul", z, self.constant(group["new"]))
            new = self.summed(self.apply("Mul", new, z), 1)
            unfitted = self.apply("Equal", index, self.constant(len(by_level), np.int64))
            variances.append(self.apply("Where", unfitted, new, self.constant(0.0)))
            square = self.apply("Mul", z, z)
            variances.append(self.summed(self.apply("Mul", square, self._picked(remainder, index)), 1))
        linear, direction = self.total(means), self.total(along)
        variances.append(self.summed(self.apply("Mul", direction, direction), 1))
        sd = self.apply("Sqrt", self.total(variances))
        outputs = dict(zip(PREDICTED, (linear, sd), strict=False))
        if (link := document["inverse_link"]) == "":
            return outputs
        rule = document["quadrature"]
        column = [self.apply("Unsqueeze", one, self.constant([1], np.int64)) for one in (linear, sd)]
        points = self.apply("Add", column[0], self.apply("Mul", column[1], self.constant([rule["nodes"]])))
        weighted = self.apply("Mul", self.inverse_link(link, points), self.constant([rule["weights"]]))
        outputs["predicted_mean"] = linear if link == "identity" else self.summed(weighted, 1)
        for name, p in (("predicted_lower", low), ("predicted_upper", high)):
            away = self.apply("Mul", sd, self.constant(NormalDist().inv_cdf(p)))
            outputs[name] = self.inverse_link(link, self.apply("Add", linear, away))
        return outputs

    def columns(self, coefficients: list[Document]) -> str:
        """Those that coefficients multiply, (rows, coefficients)."""
        if not self.document["matrix"]:
            return self.beside([self.expression(one["expression"]) for one in coefficients])
        ones = [self.expression(one["expression"]) for one in coefficients if one["expression"] == 1.0]
        return self.apply("Concat", self.beside(ones), MATRIX, axis=1) if ones else MATRIX

    def inverse_link(self, link: str, t: str) -> str:
        """μ of values."""
        return t if link == "identity" else self.apply(_LINKS[link], t)

    def _finite(self, value: str) -> str:
        return self.apply("Less", self.apply("Abs", value), self.constant(np.inf))


def _parameters(several: list[Document]) -> tuple[Any, Any, Any]:
    """Means, rows of F and entries of d."""
    return tuple(np.array([one[what] for one in several]) for what in ("mean", "factor", "remainder"))  # type: ignore[return-value]


def _levels_by_column(document: Document) -> dict[str, list[Level]]:
    """The values of each column that rows are told apart by: of categories, of groups, and in expressions."""
    levels: dict[str, list[Level]] = {}

    def add(name: str, values: list[object]) -> None:
        levels[name] = list(dict.fromkeys([*levels.get(name, []), *map(_level, values)]))

    def look(e: Portable) -> None:
        if isinstance(e, list) and e[0] == "level":
            add(e[1], [e[2]])
        elif isinstance(e, list):
            for part in e:
                look(part)

    for variable in document["variables"]:
        if variable["levels"]:
            add(variable["name"], variable["levels"])
    for group in document["groups"]:
        for j, name in enumerate(group["columns"]):
            add(name, [one["level"][j] for one in group["levels"]])
        look(group["varying"])
    for one in document["predictors"][0]["coefficients"]:
        look(one["expression"])
    for name, values in levels.items():
        if len({type(value) for value in values}) > 1:
            raise DataError(
                f"the levels of {name!r} are texts and numbers, which an input of ONNX is one of: recode it."
            )
    return levels


def _level(value: object) -> Level:
    """A level as an input has it: a text, or a number."""
    return value if isinstance(value, str) else float(value)  # type: ignore[arg-type]
