"""What measurements on the user's machine say: which plan is the fastest, and whether ours is faster than stock.

`tune` measures and writes a file; the planner and the preference rule read it through `current`. Without a file, or
with one that does not fit this machine or these kernels, everything is as without measurements. Nothing here decides
whether a result is right: every tiling that is read is one of the planner's own candidates.
"""
