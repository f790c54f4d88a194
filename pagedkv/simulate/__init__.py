"""`pagedkv simulate`: what a trace of requests does to a pool of blocks, as one run or as a sweep over settings.

`options` holds what can be chosen, `experiment` turns it into requests and a setting and runs them, `output` says what
came out, `files` keeps it, `sweep` does all that for a grid of settings on several processes or machines, and `verb`
joins them for the command line. Only a sweep and Parquet need more than the standard library.
"""
