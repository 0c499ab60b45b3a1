"""`conform report`: a static site of one or more runs, which needs no network and no server."""
