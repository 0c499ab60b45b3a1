"""What `conform check hf:NAME` says of 46 published encoders."""
