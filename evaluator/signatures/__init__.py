"""Who signed a card, whether it was changed since, and whose cards are taken."""
