"""Writes src/svrhmc/kernels/coefficients.py: polynomials fitted in 60 digits, each with its largest error.

    python tools/fit_polynomials.py > src/svrhmc/kernels/coefficients.py

Every polynomial interpolates its function at Chebyshev points and is written in powers of (variable − centre).
"""

import mpmath as mp

mp.mp.dps = 60


def fit(function, low, high, degree):
    """Coefficients in powers of (variable − centre), and the centre."""
    count, half, centre = degree + 1, (high - low) / 2, (high + low) / 2
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count) for k in range(count)]
    values = [function(centre + half * node) for node in nodes]
    powers, before, now = [mp.mpf(0)] * count, [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    for j in range(count):
        weight = mp.mpf(2 if j else 1) / count
        weight *= sum(v * mp.cos(j * mp.acos(node)) for v, node in zip(values, nodes, strict=True))
        for i, term in enumerate(before):  # before holds the Chebyshev polynomial T_j
            powers[i] += weight * term
        after = [mp.mpf(0)] + [2 * term for term in now]
        for i, term in enumerate(before):
            after[i] -= term
        before, now = now, after
    return [power / half**i for i, power in enumerate(powers)], centre


def largest_error(function, coefficients, centre, low, high):
    points = [low + (high - low) * mp.mpf(k) / 200 for k in range(201)]
    return max(abs(mp.polyval(coefficients[::-1], p - centre) / function(p) - 1) for p in points)


def quantile_ratio(w):
    """√2 erfinv(x)/x with x = √(1 − e^{−w}): a normal quantile over 2p − 1, as a function of −log(4p(1 − p))."""
    if w == 0:
        return mp.sqrt(mp.pi / 2)
    x = mp.sqrt(-mp.expm1(-w))
    tail = mp.exp(-w) / (1 + x)  # 1 − x
    guess = mp.sqrt(max(-mp.log(tail) - 1, mp.mpf("0.01"))) if tail < 0.3 else x * mp.mpf("0.9")
    return mp.sqrt(2) * mp.findroot(lambda y: mp.log(mp.erfc(y)) - mp.log(tail), guess) / x


def log_tail(f):
    """(log(1 + f) − f)/f²."""
    return (mp.log1p(f) - f) / f**2 if abs(f) > mp.mpf(10) ** -20 else -mp.mpf(1) / 2


def atanh_tail(z):
    """(2 atanh s − 2s)/s³ with z = s²."""
    s = mp.sqrt(z)
    return 2 * (mp.atanh(s) - s) / s**3 if z > mp.mpf(10) ** -25 else mp.mpf(2) / 3


def atanh_ratio(z):
    """2 atanh(s)/s with z = s²."""
    s = mp.sqrt(z)
    return 2 * mp.atanh(s) / s if z > mp.mpf(10) ** -50 else mp.mpf(2)


def main():
    third = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(mp.mpf(2)) - 1
    square = (third[1] / (2 + third[1])) ** 2
    ln2 = mp.log(2)
    split, middle, far64, far32 = mp.mpf("2.5"), mp.mpf(4), mp.mpf("6.75"), mp.mpf("4.75")
    by_root = lambda s: quantile_ratio(s * s)  # noqa: E731
    tables = [
        ("QUANTILE64", quantile_ratio, mp.mpf(0), split**2, 23, "quantile/(2p − 1) in w = −log(4p(1 − p)) < 6.25"),
        ("QUANTILE64_NEAR", by_root, split, middle, 19, "the same in √w from 2.5 to 4"),
        ("QUANTILE64_FAR", by_root, middle, far64, 20, "the same in √w from 4 to 6.75"),
        ("QUANTILE32", quantile_ratio, mp.mpf(0), split**2, 10, "as QUANTILE64, for float32"),
        ("QUANTILE32_TAIL", by_root, split, far32, 9, "the same in √w from 2.5 to 4.75"),
        ("LOG64", atanh_tail, mp.mpf(0), square, 7, "(2 atanh s − 2s)/s³ in s², s = (m − 1)/(m + 1), m from √½ to √2"),
        ("LOG32", log_tail, *third, 8, "(log(1 + f) − f)/f² in f from √½ − 1 to √2 − 1"),
        ("EXP64", mp.exp, -ln2 / 2, ln2 / 2, 11, "exp from −½ log 2 to ½ log 2"),
        ("EXP32", mp.exp, -ln2 / 2, ln2 / 2, 6, "the same for float32"),
        ("LOG1P64", atanh_ratio, mp.mpf(0), mp.mpf(1) / 9, 11, "log(1 + e)/s in s², s = e/(2 + e), e from 0 to 1"),
        ("LOG1P32", atanh_ratio, mp.mpf(0), mp.mpf(1) / 9, 6, "the same for float32"),
    ]
    print('"""Polynomials of normals.py and primitives.py, written by tools/fit_polynomials.py: lowest power first."""')
    for name, function, low, high, degree, what in tables:
        coefficients, centre = fit(function, low, high, degree)
        error = largest_error(function, coefficients, centre, low, high)
        print(f"\n# {what}; largest relative error {mp.nstr(error, 2)}")
        print(f"{name}_CENTRE = {mp.nstr(centre, 17) if abs(centre) > 1e-30 else '0.0'}")
        print(f"{name} = (")
        for value in coefficients:
            print(f"    {mp.nstr(value, 18)},")
        print(")")


if __name__ == "__main__":
    main()
