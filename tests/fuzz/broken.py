"""Cases that fail on purpose: the machine has to find each of them (`test_fuzz.py`)."""

import ctypes
import time

from hypothesis import strategies as st

from .judge import agree, ask
from .registry import case


@case(st.integers(0, 1000))
def crash(number):
    """A segfault for large numbers."""
    if number > 300:
        ctypes.string_at(0)


@case(st.integers(0, 1000))
def bare(number):
    """An error of Python's own."""
    ask(lambda: 1 / max(0, 17 - number), tame=True)


@case(st.integers(0, 1000))
def wrong(number):
    """An answer that is wrong from 40 on."""
    agree("the square", ask(lambda: number**2 + (number >= 40)), number**2, 0)


@case(st.integers(0, 1000))
def sleeps(number):
    """What does not return to Python in time."""
    if number > 300:
        time.sleep(100)
