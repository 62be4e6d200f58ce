"""Rules of subscriptions: compiled rules, the index of the rules of a topic, and SQL (`sql`).

`operations/rule_administration.py` adds and removes rules. `entities/topic.py` stores the copies.
"""
