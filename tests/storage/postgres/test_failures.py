"""Databases that cannot be used: one sentence each, with the cause and the fix."""

from __future__ import annotations

from contextlib import closing

import pytest

from storage.contract import StoreUnavailable, StoreUnusable
from storage.urls import store_for
from tests.support.owned_stores import open_as_owner
from tests.support.postgres_server import LOCKED_ROLE
from tests.support.server import free_ports


def address(server, user: str = "peeklock", database: str = "peeklock", more: str = "") -> str:
    return f"postgresql://{user}@127.0.0.1:{server.port}/{database}{more}"


@pytest.mark.parametrize(
    ("user", "database", "more", "sentence"),
    [
        (LOCKED_ROLE, "peeklock", "", "needs a password; write it to"),
        (f"{LOCKED_ROLE}:wrong", "peeklock", "", "refuses the password; correct it"),
        ("stranger", "peeklock", "", "does not know the role; create it"),
        ("peeklock", "nothing", "", "does not exist; create it with createdb"),
        ("peeklock", "peeklock", "?sslmode=require", "does not support TLS; set sslmode"),
        ("peeklock", "peeklock", "?schema=information_schema", "belongs to another program"),
        ("nobody_special", "peeklock", "?schema=new", "run CREATE SCHEMA .new. AUTHORIZATION"),
        ("peeklock", "latin", "", "has the encoding LATIN1; create one with"),
    ],
)
def test_a_database_that_cannot_be_used_is_explained(
    postgres_server, user, database, more, sentence
):
    """Which part is wrong, and what to do."""
    with closing(postgres_server.connect()) as administrator:
        ensure(administrator)
    with pytest.raises(StoreUnusable, match=sentence) as refused:
        store_for(address(postgres_server, user, database, more)).open()
    assert "\n" not in str(refused.value)
    assert "wrong" not in str(refused.value)


def ensure(administrator) -> None:
    """Creates what the cases need, once."""
    roles = {name for (name,) in administrator.execute("SELECT rolname FROM pg_roles")}
    if "nobody_special" not in roles:
        administrator.execute("CREATE ROLE nobody_special LOGIN")
        administrator.execute(
            "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )


def test_a_database_that_is_not_there_may_come(postgres_server):
    """It is no mistake of the URL: another attempt may succeed."""
    (port,) = free_ports(1)
    with pytest.raises(StoreUnavailable, match="cannot be reached; start it, or correct the URL"):
        store_for(f"postgresql://127.0.0.1:{port}/peeklock").open()


def test_of_several_servers_the_one_that_is_there_is_used(postgres_server):
    """As after a failover."""
    (port,) = free_ports(1)
    schema = postgres_server.url().partition("?")[2]
    store = store_for(
        f"postgresql://peeklock@127.0.0.1:{port},127.0.0.1:{postgres_server.port}/peeklock?{schema}"
    )
    open_as_owner(store)
    store.close()


def test_tables_of_another_program_are_left_alone(postgres_server):
    """A schema with tables that are not the broker's is not touched."""
    url = postgres_server.url()
    schema = url.partition("schema=")[2]
    with closing(postgres_server.connect()) as administrator:
        administrator.execute(f"CREATE SCHEMA {schema} AUTHORIZATION peeklock")
        store_for(url).open()  # an empty one, which an administrator has prepared
        administrator.execute(f"DROP SCHEMA {schema} CASCADE")
        administrator.execute(f"CREATE SCHEMA {schema} AUTHORIZATION peeklock")
        administrator.execute(f"CREATE TABLE {schema}.invoices (id int)")
        with pytest.raises(StoreUnusable, match="belongs to another program; add"):
            store_for(url).open()


def test_a_schema_of_a_newer_broker_is_left_alone(postgres_server):
    """The sentence names both versions."""
    url = postgres_server.url()
    store_for(url).open()
    with closing(postgres_server.connect()) as administrator:
        schema = url.partition("schema=")[2]
        administrator.execute(f"UPDATE {schema}.peeklock_version SET version = 99")
    with pytest.raises(StoreUnusable, match="has version 99, but this broker can read versions up"):
        store_for(url).open()


def test_a_schema_of_another_role_is_not_read(postgres_server):
    """Rights on the schema are missing."""
    url = postgres_server.url()
    store_for(url).open()
    with closing(postgres_server.connect()) as administrator:
        ensure(administrator)
    with pytest.raises(StoreUnusable, match="belongs to another role; let that role connect"):
        store_for(url.replace("//peeklock@", "//nobody_special@")).open()
