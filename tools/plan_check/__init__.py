"""What tools/check_plan.py is made of. Shares nothing with the library but the documents."""
