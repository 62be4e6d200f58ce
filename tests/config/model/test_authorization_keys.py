"""The secondary key that is derived from a primary key."""

from __future__ import annotations

from config.model.authorization_keys import KEY_LENGTH, derived_secondary_key


def test_a_secondary_key_depends_on_the_name_and_the_primary_key():
    derived = derived_secondary_key("Rule", "key")
    assert KEY_LENGTH == len(derived)
    assert derived == derived_secondary_key("rule", "key")
    assert derived not in {
        derived_secondary_key("other", "key"),
        derived_secondary_key("rule", "k"),
    }


def test_no_key_is_derived_from_an_empty_one():
    """Everybody could compute it. An empty key is no key."""
    assert "" == derived_secondary_key("rule", "")
