"""What survives: sessions, subscriptions, messages under way, retained messages, wills."""
