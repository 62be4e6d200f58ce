"""Rules of subscriptions: compiled rules, the index that finds the matching ones, and their SQL (`sql`).

Not here: adding and removing rules (`operations/rule_administration.py`), and storing the copies (`entities/topic.py`).
"""
