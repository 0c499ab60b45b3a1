"""`conform run`: chooses implementations and cases, and judges them."""
