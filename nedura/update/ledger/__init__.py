"""What is written down: lock, receipt, obligations, who owns a record."""
