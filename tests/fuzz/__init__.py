"""A machine that looks for inputs that break svrhmc: a crash, a hang, a bare error, a warning, a nan, a wrong answer.

judge.py      what counts as a failure, and the one way in which cases call the package
inputs.py     plain descriptions of odd inputs, whose `repr` makes them again
oracles.py    the answers once more, in many digits and by other formulas
registry.py   cases by name, the public names they cover, and all public names there are
cases/        the cases
machine.py    a child process that runs cases, and a parent that outlives what kills the child
python -m tests.fuzz --help
"""
