"""What examples/ddp_translation.py is made of besides its training loop: data and model."""
