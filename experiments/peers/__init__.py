"""Other learned solvers, written anew to be measured side by side."""
