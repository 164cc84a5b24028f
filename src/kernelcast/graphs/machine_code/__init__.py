"""The view `machine_code`: what LLVM made of a program, read from its x86-64 assembly without running it.

`instructions` reads a line, `listing` the blocks of a function, `control_flow` finds the loops, `trip_counts` how often
they turn, `cycles` what straight code keeps busy, and `rows` adds all of it up to the `columns` of a program.
"""
