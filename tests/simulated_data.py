"""Simulated data: labels of a logistic model, and files in the shapes and formats of the paper's data sets."""

import lzma

import numpy as np


def events(rng: np.random.Generator, linear_predictor: np.ndarray) -> np.ndarray:
    """True with the probability 1/(1 + e⁻ᵗ), row by row."""
    return rng.random(len(linear_predictor)) < 1 / (1 + np.exp(-linear_predictor))


def folder_like_the_real_one(root, plain=False):
    """Files of the published shapes and formats with simulated numbers: what the loader reads without its hashes."""
    rng = np.random.default_rng(0)

    def put(name, text):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if plain:
            path.write_text(text, newline="")
        else:
            path.with_name(path.name + ".xz").write_bytes(lzma.compress(text.encode()))

    def libsvm(n, d, low, high, dense=False):
        lines, way = [], rng.normal(size=d)
        for _ in range(n):
            columns = np.arange(d) if dense else np.sort(rng.choice(d, 14, replace=False))
            values = rng.normal(size=len(columns)) if dense else np.ones(len(columns))
            label = high if way[columns] @ values + rng.normal() > 0 else low
            lines.append(f"{label} " + " ".join(f"{c + 1}:{v:g}" for c, v in zip(columns, values, strict=True)))
        return "\n".join(lines) + "\n"

    def table(n, d, delimiter, header=""):
        X = rng.normal(size=(n, d))
        X[:, -1] += X[:, 0]
        rows = (delimiter.join(f"{value:.5f}" for value in row) for row in X)
        return header + "\n".join(rows) + "\n"

    put("pima/diabetes", libsvm(768, 8, "+1", "-1", dense=True))
    put("a3a/a3a", libsvm(300, 123, "-1", "+1"))
    put("a3a/a3a.t", libsvm(200, 123, "-1", "+1"))
    put("mushrooms/mushrooms", libsvm(8124, 112, "2", "1"))
    put("gisette/gisette_train_first1000.data", "\n".join("0 990 " * 500 for _ in range(30)) + "\n")
    put("gisette/gisette_train.labels", "\n".join(["1", "-1"] * 15) + "\n")
    put("geographical/default_features_1059_tracks.txt", table(50, 70, ","))
    put("noise/airfoil_self_noise.dat", table(1503, 6, "\t"))
    put("parkinson/parkinsons_updrs.data", table(1000, 22, ",", ",".join("abcdefghijklmnopqrstuv") + "\n"))
    put("toms/TomsHardware.data", table(50, 97, ","))
    put("casp/CASP.csv", table(50, 10, ",", '"RMSD","F1","F2","F3","F4","F5","F6","F7","F8","F9"\n'))
    return root


def whole_gisette(folder, train=40, valid=10):
    """The publisher's four files with all 5000 columns and few rows, and LIBSVM's two."""
    rng, way = np.random.default_rng(1), np.random.default_rng(2).normal(size=5000)
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows, scaled in (("train", train, "gisette_scale"), ("valid", valid, "gisette_scale.t")):
        X = rng.integers(1, 1000, (rows, 5000)) * (rng.random((rows, 5000)) < 0.13)
        y = np.where(X @ way > 0, 1, -1)
        y[:2] = 1, -1
        lines = [" ".join(map(str, row)) + " \n" for row in X.tolist()]
        (folder / f"gisette_{part}.data").write_text("".join(lines))
        (folder / f"gisette_{part}.labels").write_text("".join(f"{label}\n" for label in y))
        pairs = [" ".join(f"{c + 1}:{v:.6g}" for c, v in enumerate(row) if v) for row in 2 * X / 999 - 1]
        (folder / scaled).write_text("".join(f"{label:+d} {words} \n" for label, words in zip(y, pairs, strict=True)))
