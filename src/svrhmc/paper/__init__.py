"""The paper's figures and tables, run by `svrhmc reproduce`."""
