"""HTTP: trained models for other programs and for the web page. Knows nothing of the terminal or of training."""
