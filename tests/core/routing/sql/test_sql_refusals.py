"""SQL texts that are refused: where, for what, and with which words."""

from __future__ import annotations

import pytest

from broker.core.contract.errors import ArgumentError
from broker.core.routing.sql import SqlSyntaxError, compile_action
from broker.core.routing.sql.grammar import NESTING_MAX
from tests.core.routing.filter_compilation import compile_filter

END = "the end of the text"
AFTER_CONDITION = "AND, OR or the end of the text"
AFTER_VALUE = "an operator or the end of the text"
AFTER_STATEMENT = "an operator, ';', ',', SET, REMOVE or the end of the text"
STRANGE = "a value, a name or an operator (names with other characters go in [brackets])"

# Each: offset, what is found there, what is expected instead, the text.
FILTERS = [
    # --- nothing, or nothing that can be true --------------------------------------------------
    (0, END, "a value", ""),
    (3, END, "a value", "   "),
    (0, "'5'", "a condition", "5"),
    (0, "'2.5'", "a condition", "2.5"),
    (0, "'text'", "a condition", "'text'"),
    (0, "a value", "a condition", "a + 1"),
    (0, "a value", "a condition", "-a"),
    (0, "a value", "a condition", "newid()"),
    (4, "'5'", "a condition", "NOT 5"),
    (8, "'5'", "a condition", "a=1 AND 5"),
    (0, "'5'", "a condition", "5 OR a=1"),
    (1, "a value", "a condition", "(a + 1 AND b)"),
    (0, "'@text'", "a condition", "@text"),
    # --- values missing ------------------------------------------------------------------------
    (3, END, "a value", "a ="),
    (0, "'='", "a value", "= 1"),
    (4, "'='", "a value", "a = = 1"),
    (3, "'='", "a value", "a == 1"),
    (8, END, "a value", "a=1 AND "),
    (4, "'OR'", "a value", "a = OR b"),
    (0, "'AND'", "a value", "AND a=1"),
    (8, "'AND'", "a value", "a=1 AND AND b=1"),
    (3, END, "a value", "NOT"),
    (3, "'='", "a value", "NOT= 1"),
    (4, "'NOT'", "a value", "a = NOT b"),
    (4, "'*'", "a value", "a + * 2 = 1"),
    (7, END, "a value", "a = 1 +"),
    (6, END, "a value", "a LIKE"),
    (17, END, "a value", "a LIKE 'b' ESCAPE"),
    (4, "';'", "a value", "a = ;"),
    # --- too much ------------------------------------------------------------------------------
    (4, "'b'", AFTER_CONDITION, "a=1 b=2"),
    (6, "'='", AFTER_CONDITION, "a = 1 = 1"),
    (2, "'b'", AFTER_VALUE, "a b"),
    (2, "'between'", AFTER_VALUE, "a between 1 and 2"),
    (3, "';'", AFTER_CONDITION, "1=1;"),
    (3, "','", AFTER_CONDITION, "1=1, 2=2"),
    (3, "')'", AFTER_CONDITION, "1=1)"),
    (10, "'IS'", AFTER_CONDITION, "a IS NULL IS NULL"),
    (2, "'1'", AFTER_VALUE, "a 1"),
    (4, "'.5'", AFTER_CONDITION, "a=1 .5"),
    (2, "'2'", AFTER_VALUE, "a 2 = 1"),
    # --- conditions where values belong, and the other way round -------------------------------
    (0, "a condition", "a value", "(a=1) = 2"),
    (4, "a condition", "a value", "a = (b = 1)"),
    (0, "a condition", "a value", "(a=1) + 1 = 2"),
    (4, "a condition", "a value", "1 + (b = 1) = 2"),
    (1, "a condition", "a value", "-(a=1) = 2"),
    (0, "a condition", "a value", "(a=1) IN (1)"),
    (6, "a condition", "a value", "a IN ((b=1))"),
    (0, "a condition", "a value", "(a=1) LIKE 'x'"),
    (7, "a condition", "a value", "a LIKE (b=1)"),
    (0, "a condition", "a value", "EXISTS(a) = TRUE"),
    (9, "a condition", "a value", "property((a=1)) = 1"),
    # --- IS, IN, LIKE, EXISTS ------------------------------------------------------------------
    (4, END, "NULL or NOT NULL", "a IS"),
    (5, "'1'", "NULL or NOT NULL", "a IS 1"),
    (5, "'TRUE'", "NULL or NOT NULL", "a IS TRUE"),
    (8, END, "NULL", "a IS NOT"),
    (9, "'1'", "NULL", "a IS NOT 1"),
    (0, "'1'", "a property to the left of IS", "1 IS NULL"),
    (0, "'@text'", "a property to the left of IS", "@text IS NULL"),
    (0, "'a'", "a property to the left of IS", "a + 1 IS NULL"),
    (0, "'('", "a property to the left of IS", "(a = 1) IS NULL"),
    (4, END, "'('", "a IN"),
    (5, "'1'", "'('", "a IN 1"),
    (6, "')'", "a value", "a IN ()"),
    (7, END, "',' or ')'", "a IN (1"),
    (8, END, "a value", "a IN (1,"),
    (8, "')'", "a value", "a IN (1,)"),
    (8, "'2'", "',' or ')'", "a IN (1 2)"),
    (6, END, "IN or LIKE", "a NOT "),
    (6, "'='", "IN or LIKE", "a NOT = 1"),
    (6, "'b'", "IN or LIKE", "a NOT b"),
    (18, "'xy'", "one character to the right of ESCAPE", "a LIKE 'b' ESCAPE 'xy'"),
    (18, "''", "one character to the right of ESCAPE", "a LIKE 'b' ESCAPE ''"),
    (18, "'1'", "one character to the right of ESCAPE", "a LIKE 'b' ESCAPE 1"),
    (6, END, "'('", "EXISTS"),
    (7, "'a'", "'('", "EXISTS a"),
    (7, "')'", "a value", "EXISTS()"),
    (7, "'1'", "a property", "EXISTS(1)"),
    (7, "'a'", "a property", "EXISTS(a + 1)"),
    (7, "'text'", "a property", "EXISTS('text')"),
    (8, END, "')'", "EXISTS(a"),
    (8, "','", "')'", "EXISTS(a, b)"),
    # --- parentheses ---------------------------------------------------------------------------
    (1, END, "a value", "("),
    (1, "')'", "a value", "()"),
    (4, END, "an operator or ')'", "(1=1"),
    (3, "'b'", "an operator or ')'", "(a b) = 1"),
    # --- names ---------------------------------------------------------------------------------
    (5, "'.'", AFTER_VALUE, "sys.a.b = 1"),
    (0, "'foo'", "the scope sys or user (a name with a dot goes in [brackets])", "foo.bar = 1"),
    (0, "'[sys]'", "the scope sys or user (a name with a dot goes in [brackets])", "[sys].a = 1"),
    (4, END, "a property name", "sys."),
    (4, "'='", "a property name", "sys.= 1"),
    (4, "'.1'", AFTER_VALUE, "user.1 = 1"),
    (5, "'NOT'", "a property name (write [NOT] to use this word as one)", "user.NOT = 1"),
    (4, "'in'", "a property name (write [in] to use this word as one)", "sys.in = 1"),
    (0, "an unmatched [", "a name and a closing ]", "[a = 1"),
    (0, "an unmatched [", "a name and a closing ]", "[] = 1"),
    (0, "an unmatched [", "a name and a closing ]", "[a]] = 1"),
    (0, 'an unmatched "', 'a name and a closing "', '"a = 1'),
    (0, 'an unmatched "', 'a name and a closing "', '"" = 1'),
    # --- constants -----------------------------------------------------------------------------
    (4, "an unmatched '", "a closing '", "a = 'b"),
    (4, "an unmatched '", "a closing '", "a = 'it''s"),
    (4, "an unmatched '", "a closing '", "a = '"),
    (4, "'0x1F'", "a number", "a = 0x1F"),
    (4, "'12abc'", "a number", "a = 12abc"),
    (4, "'1.5x'", "a number", "a = 1.5x"),
    (4, "'1E'", "a number", "a = 1E"),
    (4, "'1_000'", "a number", "a = 1_000"),
    (4, "'9223372036854775808'", "an integer of at most 64 bits", "a = 9223372036854775808"),
    (5, "'9223372036854775809'", "an integer of at most 64 bits", "a = -9223372036854775809"),
    (4, "'1E999'", "a number in the range of a double", "a = 1E999"),
    (7, "'.2'", AFTER_CONDITION, "a = 1.5.2"),
    # --- functions and parameters --------------------------------------------------------------
    (0, "'foo'", "the function newid, property or p", "foo(1) = 1"),
    (0, "'lower'", "the function newid, property or p", "lower(color) = 'red'"),
    (6, "'1'", "')'", "newid(1) = 1"),
    (9, "')'", "a value", "property() = 1"),
    (12, "','", "')'", "property('a', 'b') = 1"),
    (4, "'@missing'", "a parameter that has been given a value", "a = @missing"),
    # --- characters that mean nothing ----------------------------------------------------------
    (2, "'&'", STRANGE, "a & b"),
    (0, "'_'", STRANGE, "_a = 1"),
    (0, "'$'", STRANGE, "$a = 1"),
    (4, "'@'", STRANGE, "a = @"),
    (3, "'!'", STRANGE, "a =!b"),
    (4, "'='", "a value", "a = =b"),
]

# Each: offset, what is found there, what is expected instead, the text.
ACTIONS = [
    (0, END, "SET or REMOVE", ""),
    (0, "'color'", "SET or REMOVE", "color = 'red'"),
    (0, "'DELETE'", "SET or REMOVE", "DELETE color"),
    (0, "'[SET]'", "SET or REMOVE", "[SET] a = 1"),
    (0, "';'", "SET or REMOVE", ";"),
    (3, END, "a property name", "SET"),
    (4, "'1'", "a property name", "SET 1 = 1"),
    (4, "'NOT'", "a property name (write [NOT] to use this word as one)", "SET NOT = 1"),
    (5, END, "'='", "SET a"),
    (6, "'<>'", "'='", "SET a <> 1"),
    (7, END, "a value", "SET a ="),
    (12, "'='", AFTER_STATEMENT, "SET a = b   = 1"),
    (8, "a condition", "a value", "SET a = (b = 1)"),
    (8, "a condition", "a value", "SET a = EXISTS(b)"),
    (10, "'AND'", AFTER_STATEMENT, "SET a = 1 AND b = 2"),
    (10, "'b'", AFTER_STATEMENT, "SET a = 1 b = 2"),
    (10, "'[SET]'", AFTER_STATEMENT, "SET a = 1 [SET] b = 2"),
    (13, END, "a property name", "SET a = 1 SET"),
    (10, END, "SET or REMOVE", "SET a = 1,"),
    (10, "';'", "SET or REMOVE", "SET a = 1;;"),
    (11, "'b'", "SET or REMOVE", "SET a = 1, b = 2"),
    (6, END, "a property name", "REMOVE"),
    (9, "'='", AFTER_STATEMENT, "REMOVE a = 1"),
    (7, "'text'", "a property name", "REMOVE 'text'"),
    (8, "'('", "'='", "SET prop(a) = 1"),
    (4, "sys.DeliveryCount", "a property that may be changed", "SET sys.DeliveryCount = 0"),
    (7, "sys.EnqueuedTime", "a property that may be changed", "REMOVE sys.EnqueuedTime"),
    (8, "'@none'", "a parameter that has been given a value", "SET a = @none"),
]


def _refusal(compile_text, text, parameters):
    with pytest.raises(SqlSyntaxError) as refused:
        compile_text(text, parameters)
    return refused.value


@pytest.mark.parametrize(("position", "found", "expected", "text"), FILTERS)
def test_a_filter_is_refused(position, found, expected, text):
    """The error has the first position at which no valid text could continue."""
    refusal = _refusal(compile_filter, text, {"@text": "red"})
    assert (position, found, expected) == (refusal.position, refusal.found, refusal.expected)


@pytest.mark.parametrize(("position", "found", "expected", "text"), ACTIONS)
def test_an_action_is_refused(position, found, expected, text):
    """Actions are refused like filters, each statement by its own grammar."""
    refusal = _refusal(compile_action, text, {})
    assert (position, found, expected) == (refusal.position, refusal.found, refusal.expected)


def test_a_refusal_is_an_argument_error_that_says_where():
    """The error has line and column, counted from one, and the condition."""
    refusal = _refusal(compile_filter, "color = 'red'\n  AND quantity > > 5", {})
    assert (2, 18) == (refusal.line, refusal.column)
    assert "com.microsoft:argument-error" == refusal.condition
    assert 400 == refusal.status
    assert (
        "The SQL expression is not valid at line 2, column 18: found '>', expected a value."
        == str(refusal)
    )


def test_a_long_word_is_shown_shortened():
    """An error names what it found, but not at any length."""
    refusal = _refusal(compile_filter, "a = 1 " + "b" * 100, {})
    assert f"'{'b' * 37}...'" == refusal.found


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("NOT ", "")])
def test_nesting_has_a_bound(opening, closing):
    """Depth is refused in words before it can exhaust the stack."""
    compile_filter(opening * NESTING_MAX + "1=1" + closing * NESTING_MAX)
    refusal = _refusal(compile_filter, opening * 200 + "1=1" + closing * 200, {})
    assert f"at most {NESTING_MAX} levels of nesting" == refusal.expected


def test_signs_and_functions_nest_within_the_same_bound():
    """No way of nesting escapes the bound."""
    for text in ["-" * 200 + "a = 1", "p(" * 200 + "a" + ")" * 200 + " = 1"]:
        refusal = _refusal(compile_filter, text, {})
        assert f"at most {NESTING_MAX} levels of nesting" == refusal.expected


def test_an_action_has_so_many_statements_and_no_more():
    """The limit counts statements; the default is 32."""
    compile_action("SET a = 1;" * 32)
    with pytest.raises(ArgumentError, match="more than 32 statements"):
        compile_action("SET a = 1;" * 33)
    compile_action("SET a = 1;" * 33, max_statements=33)


def test_an_action_has_a_greatest_length():
    """The limit counts characters; the default is 1024."""
    compile_action("SET a = 1".ljust(1024))
    with pytest.raises(ArgumentError, match="the limit is 1024"):
        compile_action("SET a = 1".ljust(1025))
