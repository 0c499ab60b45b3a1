"""Exit statuses: 0 all as expected; 1 something did not conform; 2 wrong usage or bad input; 3 incomplete or failed."""

NOT_AS_EXPECTED, BAD_INPUT, INCOMPLETE = 1, 2, 3
