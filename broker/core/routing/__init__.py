"""Rules of subscriptions: compiled rules, the index of the rules of a topic, and SQL (`sql`).

`operations/rule_administration.py` adds and removes rules. `entities/subscription_copies.py` makes the
copies.
"""
