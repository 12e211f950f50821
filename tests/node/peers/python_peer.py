# SPDX-License-Identifier: Apache-2.0
"""The stock Python driver as a judge of a CQL server: every case states what a real Cassandra does.

    python_peer.py --host H --port P [--version 4|5] [--newest 4|5] [--compression none|lz4]
                   [--nodes N] [--auth USER:PASSWORD] [--ca FILE [--cert FILE --key FILE]] [--rows N] [--only TEXT]

One line a case, `ok` or `FAIL` with the reason, then `N passed, N failed`. Exit status 1 if any failed.
"""
import argparse
import contextlib
import logging
import ssl
import sys
import time
import traceback
import uuid

from cassandra import (AlreadyExists, AuthenticationFailed, ConsistencyLevel, InvalidRequest, Unauthorized)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, default_lbp_factory)
from cassandra.concurrent import execute_concurrent, execute_concurrent_with_args
from cassandra.metadata import Murmur3Token
from cassandra.policies import RoundRobinPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ExecuteMessage, PreparedQueryNotFound, SyntaxException
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, SimpleStatement, dict_factory, tuple_factory

from python_values import NAMED_FLOATS, NESTED, SCALARS, VECTORS, plain

passed = 0
failed = 0
options = None


@contextlib.contextmanager
def case(name):
    """A failure is reported and the run goes on; cases that needed it fail after it."""
    global passed, failed
    if options.only and options.only not in name:
        # The body of a with statement cannot be skipped: it runs, uncounted.
        with contextlib.suppress(Exception):
            yield
        return
    try:
        yield
    except Exception as error:
        failed += 1
        where = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(where) if frame.filename == __file__), 0)
        print(f"FAIL {name}: line {line}: {type(error).__name__}: {str(error)[:500]}", flush=True)
    else:
        passed += 1
        print(f"ok {name}", flush=True)


def same(got, wanted):
    assert plain(got) == plain(wanted), f"got {got!r}, wanted {wanted!r}"


def refused(kind, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected, and nothing was raised")


def eventually(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def new_cluster(**changes):
    tls = None
    if options.ca:
        tls = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=options.ca)
        tls.check_hostname = False  # the stock driver connects by address; the SAN is checked in the TLS cases
        if options.cert:
            tls.load_cert_chain(options.cert, options.key)
    settings = dict(
        contact_points=[options.host], port=options.port, protocol_version=options.version,
        compression="lz4" if options.compression == "lz4" else False, ssl_context=tls,
        connect_timeout=15, control_connection_timeout=15, idle_heartbeat_interval=0, schema_event_refresh_window=0.1,
        max_schema_agreement_wait=30,
        execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(
            load_balancing_policy=default_lbp_factory(), consistency_level=ConsistencyLevel.ONE, request_timeout=60)})
    if options.auth:
        user, _, password = options.auth.partition(":")
        settings["auth_provider"] = PlainTextAuthProvider(user, password)
    settings.update(changes)
    if settings["protocol_version"] is None:
        del settings["protocol_version"]
    return Cluster(**settings)


def rows(result):
    return [tuple(row) for row in result]


# The cases, in the order of a first acquaintance -----------------------------------------------

def connecting(cluster, session):
    with case("connect: the protocol version asked for is spoken"):
        same(cluster.protocol_version, options.version)
        connection = cluster.control_connection._connection
        assert (connection.decompressor is not None) == (options.compression == "lz4"), "compression"
    with case("connect: no version asked for, the driver negotiates downwards from its newest"):
        other = new_cluster(protocol_version=None)
        try:
            other.connect()
            same(other.protocol_version, options.newest)
        finally:
            other.shutdown()
    with case("connect: system.local describes the node"):
        row = session.execute("SELECT * FROM system.local WHERE key='local'").one()
        for name in ("cluster_name", "data_center", "rack", "release_version", "cql_version", "native_protocol_version",
                     "partitioner", "host_id", "schema_version", "tokens", "broadcast_address", "rpc_address"):
            assert getattr(row, name), f"system.local.{name} is empty"
        same(row.key, "local")
        same(row.partitioner, "org.apache.cassandra.dht.Murmur3Partitioner")
        assert isinstance(row.host_id, uuid.UUID)
    with case("connect: system.peers_v2 and system.peers list the other nodes"):
        asked = cluster.metadata.all_hosts()[0]
        local = session.execute("SELECT host_id FROM system.local", host=asked).one().host_id
        peers = list(session.execute("SELECT * FROM system.peers_v2", host=asked))
        same(len(peers), options.nodes - 1)
        for peer in peers:
            assert peer.tokens and peer.host_id and peer.host_id != local and peer.native_address
            same(peer.native_port, options.port)
        same(len(list(session.execute("SELECT peer, host_id, tokens, rpc_address FROM system.peers"))), options.nodes - 1)
    with case("connect: the driver sees every node up"):
        hosts = cluster.metadata.all_hosts()
        same(len(hosts), options.nodes)
        eventually(lambda: all(host.is_up for host in hosts))
        same(len({host.host_id for host in hosts}), options.nodes)
    with case("connect: OPTIONS gives versions, CQL version and compression"):
        supported = cluster.control_connection._connection
        assert supported.cql_version and supported.cql_version[0] == "3", supported.cql_version


def keyspaces(cluster, session, ks):
    with case("keyspace: create, and the driver's metadata shows it"):
        session.execute(f"CREATE KEYSPACE {ks} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        meta = cluster.metadata.keyspaces[ks]
        assert meta.durable_writes
        same(meta.replication_strategy.name, "SimpleStrategy")
        same(meta.replication_strategy.replication_factor, 1)
    with case("keyspace: NetworkTopologyStrategy, ALTER and DROP"):
        dc = session.execute("SELECT data_center FROM system.local").one().data_center
        session.execute(f"CREATE KEYSPACE {ks}_nts WITH replication = {{'class': 'NetworkTopologyStrategy', '{dc}': 1}} "
                        "AND durable_writes = true")
        same(cluster.metadata.keyspaces[f"{ks}_nts"].replication_strategy.dc_replication_factors, {dc: 1})
        session.execute(f"ALTER KEYSPACE {ks}_nts WITH durable_writes = false")
        assert not cluster.metadata.keyspaces[f"{ks}_nts"].durable_writes
        session.execute(f"DROP KEYSPACE {ks}_nts")
        assert f"{ks}_nts" not in cluster.metadata.keyspaces
    with case("keyspace: an existing one is refused, IF NOT EXISTS is not"):
        replication = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        refused(AlreadyExists, session.execute, f"CREATE KEYSPACE {ks} {replication}")
        session.execute(f"CREATE KEYSPACE IF NOT EXISTS {ks} {replication}")
        session.execute(f"DROP KEYSPACE IF EXISTS {ks}_not_there")
    with case("keyspace: a quoted name keeps its case"):
        session.execute(f'CREATE KEYSPACE "{ks}_Mixed" WITH replication = {{\'class\': \'SimpleStrategy\', \'replication_factor\': 1}}')
        session.execute(f'CREATE TABLE "{ks}_Mixed"."Table" ("Key" int PRIMARY KEY, "Value" text)')
        session.execute(f'INSERT INTO "{ks}_Mixed"."Table" ("Key", "Value") VALUES (1, \'x\')')
        row = session.execute(f'SELECT * FROM "{ks}_Mixed"."Table"', execution_profile="dicts").one()
        same(row, {"Key": 1, "Value": "x"})
        assert "Table" in cluster.metadata.keyspaces[f"{ks}_Mixed"].tables
        session.execute(f'DROP KEYSPACE "{ks}_Mixed"')
    with case("keyspace: USE by statement and by the driver, unqualified names follow"):
        own = cluster.connect()
        refused(InvalidRequest, own.execute, "SELECT * FROM used")
        own.execute(f"USE {ks}")
        own.execute("CREATE TABLE used (id int PRIMARY KEY, v int)")
        own.execute("INSERT INTO used (id, v) VALUES (1, 2)")
        other = cluster.connect(ks)
        same(rows(other.execute("SELECT id, v FROM used")), [(1, 2)])
        refused(InvalidRequest, other.execute, "USE there_is_no_such_keyspace")
        own.shutdown()
        other.shutdown()


def types(cluster, session, ks):
    session.set_keyspace(ks)
    with case("type: CREATE TYPE, nested, in the driver's metadata"):
        session.execute("CREATE TYPE address (street text, zip int, tags frozen<set<text>>)")
        session.execute("CREATE TYPE person (id uuid, home frozen<address>, history frozen<list<frozen<tuple<timestamp, double>>>>)")
        user_types = cluster.metadata.keyspaces[ks].user_types
        same(list(user_types["address"].field_names), ["street", "zip", "tags"])
        same([str(t) for t in user_types["address"].field_types], ["text", "int", "frozen<set<text>>"])
        assert "person" in user_types
        refused(InvalidRequest, session.execute, "CREATE TYPE address (street text)")
    for title, table, columns in (("scalars", "scalars", SCALARS), ("nested", "nested", NESTED),
                                  ("vectors", "vectors", VECTORS)):
        if table == "vectors" and options.no_vectors:
            continue
        with case(f"types: a table of all {title}"):
            session.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {', '.join(f'{c[0]} {c[1]}' for c in columns)})")
            meta = cluster.metadata.keyspaces[ks].tables[table]
            same(set(meta.columns), {"id"} | {c[0] for c in columns})
            for name, cql_type, _, _ in columns:
                # A tuple is always frozen, and varchar is another name of text.
                wanted = f"frozen<{cql_type}>" if cql_type.startswith("tuple") else cql_type.replace("varchar", "text")
                same((name, meta.columns[name].cql_type), (name, wanted))
        names = ", ".join(c[0] for c in columns)
        with case(f"types: all {title} in one prepared row"):
            insert = session.prepare(f"INSERT INTO {table} (id, {names}) VALUES (?, {', '.join('?' * len(columns))})")
            session.execute(insert, [0] + [c[2] for c in columns])
            got = session.execute(session.prepare(f"SELECT {names} FROM {table} WHERE id = ?"), [0]).one()
            for column, value in zip(columns, got):
                same((column[0], value), (column[0], column[2]))
        for index, (name, cql_type, value, literal) in enumerate(columns, 1):
            with case(f"types: {name[2:]} {cql_type} by prepared statement"):
                session.execute(session.prepare(f"INSERT INTO {table} (id, {name}) VALUES (?, ?)"), [index, value])
                same(session.execute(f"SELECT {name} FROM {table} WHERE id = {index}").one()[0], value)
            with case(f"types: {name[2:]} {cql_type} by literal"):
                session.execute(f"INSERT INTO {table} (id, {name}) VALUES ({index + 1000}, {literal})")
                same(session.execute(session.prepare(f"SELECT {name} FROM {table} WHERE id = ?"), [index + 1000]).one()[0], value)
    with case("types: values written by the driver into the text of a simple statement"):
        # The driver has no text for durations and addresses, and takes decimals through a double.
        some = [c for c in SCALARS if c[1] not in ("duration", "inet", "decimal")]
        session.execute(f"INSERT INTO scalars (id, {', '.join(c[0] for c in some)}) VALUES (%s, {', '.join(['%s'] * len(some))})",
                        [5000] + [c[2] for c in some])
        got = session.execute(f"SELECT {', '.join(c[0] for c in some)} FROM scalars WHERE id = %s", [5000]).one()
        for column, value in zip(some, got):
            same((column[0], value), (column[0], column[2]))
    with case("types: NaN and the infinities, by value and by name"):
        insert = session.prepare("INSERT INTO scalars (id, c_float, c_double) VALUES (?, ?, ?)")
        for index, (name, value) in enumerate(NAMED_FLOATS):
            session.execute(insert, [6000 + index, value, value])
            session.execute(f"INSERT INTO scalars (id, c_float, c_double) VALUES ({6010 + index}, {name}, {name})")
            for key in (6000 + index, 6010 + index):
                same(session.execute(f"SELECT c_float, c_double FROM scalars WHERE id = {key}").one(), (value, value))
    with case("types: null deletes, unset leaves alone"):
        insert = session.prepare("INSERT INTO scalars (id, c_int, c_text, c_uuid) VALUES (?, ?, ?, ?)")
        session.execute(insert, [7000, 1, "one", UNSET_VALUE])
        same(session.execute("SELECT c_int, c_text, c_uuid FROM scalars WHERE id = 7000").one(), (1, "one", None))
        session.execute(insert, [7000, None, UNSET_VALUE, None])
        same(session.execute("SELECT c_int, c_text, c_uuid FROM scalars WHERE id = 7000").one(), (None, "one", None))
        session.execute("INSERT INTO scalars (id, c_text) VALUES (7000, null)")
        same(session.execute("SELECT c_text FROM scalars WHERE id = 7000").one(), (None,))
    with case("types: an empty collection outside frozen is null, inside it is empty"):
        session.execute(session.prepare("INSERT INTO nested (id, n_list, n_frozen_list) VALUES (?, ?, ?)"), [7000, [], []])
        same(session.execute("SELECT n_list, n_frozen_list FROM nested WHERE id = 7000").one(), (None, []))
    with case("types: sets and maps come back sorted"):
        session.execute("INSERT INTO nested (id, n_set, n_map) VALUES (7001, {'c', 'a', 'b'}, {'z': 1, 'm': 2, 'a': 3})")
        row = session.execute("SELECT n_set, n_map FROM nested WHERE id = 7001").one()
        same(list(row[0]), ["a", "b", "c"])
        same(list(row[1].keys()), ["a", "m", "z"])
    with case("types: a wrong literal and a wrong number of values are refused"):
        refused(InvalidRequest, session.execute, "INSERT INTO scalars (id, c_int) VALUES (1, 'text')")
        refused(InvalidRequest, session.execute, "INSERT INTO scalars (id, c_int) VALUES (1, 99999999999)")
        refused(InvalidRequest, session.execute, "INSERT INTO scalars (id, c_int) VALUES (1)")
    with case("types: a value of the wrong size is refused"):
        insert = session.prepare("INSERT INTO scalars (id, c_int) VALUES (?, ?)")
        bound = insert.bind([1, 2])
        bound.values[1] = b"\x00\x01\x02"
        refused(InvalidRequest, session.execute, bound)


def schema_objects(cluster, session, ks):
    """What a server takes note of beside tables, and how the driver's metadata shows it."""
    session.set_keyspace(ks)
    with case("schema: indexes and their targets"):
        session.execute("CREATE TABLE noted (p int, c int, v text, s set<text>, m map<text, int>, \"Odd\" int, PRIMARY KEY (p, c)) "
                        "WITH comment = 'it''s noted' AND gc_grace_seconds = 3600 AND bloom_filter_fp_chance = 0.05")
        session.execute("CREATE INDEX ON noted (s)")
        session.execute("CREATE INDEX by_entry ON noted (entries(m))")
        session.execute("CREATE INDEX by_odd ON noted (\"Odd\")")
        indexes = cluster.metadata.keyspaces[ks].tables["noted"].indexes
        same({name: index.index_options["target"] for name, index in indexes.items()},
             {"noted_s_idx": "values(s)", "by_entry": "entries(m)", "by_odd": '"Odd"'})
    with case("schema: options of a table"):
        shown = cluster.metadata.keyspaces[ks].tables["noted"].options
        same((shown["comment"], shown["gc_grace_seconds"], shown["bloom_filter_fp_chance"]), ("it's noted", 3600, 0.05))
    with case("schema: materialized views"):
        session.execute("CREATE MATERIALIZED VIEW noted_by_v AS SELECT p, c, v FROM noted WHERE v IS NOT NULL AND p IS NOT NULL AND c IS NOT NULL "
                        "PRIMARY KEY (v, p, c) WITH CLUSTERING ORDER BY (p DESC, c ASC)")
        view = cluster.metadata.keyspaces[ks].views["noted_by_v"]
        same(view.base_table_name, "noted")
        same(view.where_clause, "v IS NOT NULL AND p IS NOT NULL AND c IS NOT NULL")
        same([c.name for c in view.partition_key + view.clustering_key], ["v", "p", "c"])
        same(view.include_all_columns, False)
        refused(InvalidRequest, session.execute, "INSERT INTO noted_by_v (v, p, c) VALUES ('a', 1, 2)")
        refused(InvalidRequest, session.execute, "DROP TABLE noted")
        session.execute("DROP MATERIALIZED VIEW noted_by_v")
        assert "noted_by_v" not in cluster.metadata.keyspaces[ks].views
    with case("schema: functions and aggregates"):
        session.execute("CREATE FUNCTION plus (state int, val int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS $$ return state + val; $$")
        session.execute("CREATE FUNCTION half (state int) RETURNS NULL ON NULL INPUT RETURNS double LANGUAGE java AS 'return state / 2.0;'")
        session.execute("CREATE AGGREGATE total (int) SFUNC plus STYPE int FINALFUNC half INITCOND 7")
        keyspace = cluster.metadata.keyspaces[ks]
        function, aggregate = keyspace.functions["plus(int,int)"], keyspace.aggregates["total(int)"]
        same((function.argument_names, function.return_type, function.language, function.called_on_null_input),
             (["state", "val"], "int", "java", True))
        same(function.body.strip(), "return state + val;")
        same((aggregate.state_func, aggregate.state_type, aggregate.final_func, aggregate.initial_condition, aggregate.return_type),
             ("plus", "int", "half", "7", "double"))
        refused(InvalidRequest, session.execute, "CREATE FUNCTION half (state int) CALLED ON NULL INPUT RETURNS int LANGUAGE java AS 'return 1;'")
        session.execute("DROP AGGREGATE total")
        session.execute("DROP FUNCTION plus(int, int)")
        session.execute("DROP FUNCTION half")
        assert not keyspace.functions and not keyspace.aggregates


def preparing(cluster, session, ks):
    with case("prepared: bind and result metadata"):
        session.execute("CREATE TABLE meta (a int, b text, c bigint, v frozen<list<int>>, PRIMARY KEY ((b, a), c))")
        insert = session.prepare("INSERT INTO meta (a, b, c, v) VALUES (?, ?, ?, ?)")
        same([(c.keyspace_name, c.table_name, c.name, c.type.cql_parameterized_type()) for c in insert.column_metadata],
             [(ks, "meta", "a", "int"), (ks, "meta", "b", "varchar"), (ks, "meta", "c", "bigint"), (ks, "meta", "v", "list<int>")])
        same(list(insert.routing_key_indexes), [1, 0])
        select = session.prepare("SELECT v, c FROM meta WHERE b = ? AND a = ? AND c > ?")
        same([c.name for c in select.column_metadata], ["b", "a", "c"])
        same([c[2] for c in select.result_metadata], ["v", "c"])
    with case("prepared: named bind markers"):
        insert = session.prepare("INSERT INTO meta (a, b, c) VALUES (:x, :y, :z)")
        same([c.name for c in insert.column_metadata], ["x", "y", "z"])
        session.execute(insert, {"x": 1, "y": "k", "z": 9})
        same(rows(session.execute("SELECT c FROM meta WHERE a = 1 AND b = 'k'")), [(9,)])
    with case("prepared: the routing key's token is the server's token()"):
        insert = session.prepare("INSERT INTO meta (a, b, c) VALUES (?, ?, ?)")
        for number in range(20):
            bound = insert.bind([number, f"key {number} é", 1])
            session.execute(bound)
            token = session.execute("SELECT token(b, a) FROM meta WHERE b = %s AND a = %s", [f"key {number} é", number]).one()[0]
            same(token, Murmur3Token.from_key(bound.routing_key).value)
    with case("prepared: an unknown id is answered UNPREPARED with that id"):
        connection = cluster.connection_factory(cluster.metadata.all_hosts()[0].endpoint)
        try:
            message = ExecuteMessage(b"0123456789abcdef", [], ConsistencyLevel.ONE)
            if options.version >= 5:
                message.result_metadata_id = b"0123456789abcdef"
            error = refused(PreparedQueryNotFound, connection.wait_for_response, message, timeout=10)
            same(error.info, b"0123456789abcdef")
        finally:
            connection.close()
    with case("prepared: a statement of a table that was dropped and made again still works"):
        session.execute("CREATE TABLE again (id int PRIMARY KEY, v int)")
        insert = session.prepare("INSERT INTO again (id, v) VALUES (?, ?)")
        session.execute(insert, [1, 1])
        session.execute("DROP TABLE again")
        refused(InvalidRequest, session.execute, insert, [1, 1])
        session.execute("CREATE TABLE again (id int PRIMARY KEY, v int)")
        session.execute(insert, [2, 2])
        same(rows(session.execute("SELECT id, v FROM again")), [(2, 2)])
    with case("prepared: the same text gives the same id"):
        same(session.prepare("SELECT * FROM again").query_id, session.prepare("SELECT * FROM again").query_id)
        assert session.prepare("SELECT * FROM again").query_id != session.prepare("SELECT id FROM again").query_id
    if options.version >= 5:
        with case("prepared: SELECT * learns of a new column (metadata id)"):
            select = session.prepare("SELECT * FROM again")
            same(len(session.execute(select).one()), 2)
            session.execute("ALTER TABLE again ADD w text")
            session.execute("UPDATE again SET w = 'new' WHERE id = 2")
            row = session.execute(select).one()
            same((row.id, row.v, row.w), (2, 2, "new"))
        with case("v5: a keyspace in the request"):
            own = cluster.connect()
            statement = SimpleStatement("SELECT id FROM again", keyspace=ks)
            same(rows(own.execute(statement)), [(2,)])
            prepared = own.prepare("SELECT v FROM again WHERE id = ?", keyspace=ks)
            same(rows(own.execute(prepared, [2])), [(2,)])
            own.shutdown()
    with case("prepared: what cannot be prepared is refused with its reason"):
        refused(SyntaxException, session.prepare, "SELEKT 1")
        refused(InvalidRequest, session.prepare, "SELECT nothing FROM again")
        refused(InvalidRequest, session.prepare, "SELECT * FROM there_is_no_such_table")


def reading(cluster, session, ks):
    with case("read: a table with two clustering columns, one descending"):
        session.execute("CREATE TABLE wide (p int, a int, b text, s text static, v int, PRIMARY KEY (p, a, b)) "
                        "WITH CLUSTERING ORDER BY (a DESC, b ASC)")
        meta = cluster.metadata.keyspaces[ks].tables["wide"]
        same([c.name for c in meta.partition_key], ["p"])
        same([(c.name, c.is_reversed) for c in meta.clustering_key], [("a", True), ("b", False)])
        assert meta.columns["s"].is_static
        insert = session.prepare("INSERT INTO wide (p, a, b, v) VALUES (?, ?, ?, ?)")
        execute_concurrent_with_args(session, insert, [(p, a, b, p * 100 + a) for p in range(3) for a in range(10) for b in "xyz"])
        same(rows(session.execute("SELECT a, b FROM wide WHERE p = 1")), [(a, b) for a in range(9, -1, -1) for b in "xyz"])
    for where, wanted in (
            ("a = 4", [(4, b) for b in "xyz"]), ("a = 4 AND b = 'y'", [(4, "y")]),
            ("a > 7", [(a, b) for a in (9, 8) for b in "xyz"]), ("a >= 8", [(a, b) for a in (9, 8) for b in "xyz"]),
            ("a < 1", [(0, b) for b in "xyz"]), ("a <= 0", [(0, b) for b in "xyz"]),
            ("a > 2 AND a <= 4", [(a, b) for a in (4, 3) for b in "xyz"]),
            ("a = 4 AND b > 'x'", [(4, "y"), (4, "z")]), ("a = 4 AND b >= 'x' AND b < 'z'", [(4, "x"), (4, "y")]),
            ("a IN (1, 7)", [(a, b) for a in (7, 1) for b in "xyz"]), ("a = 4 AND b IN ('z', 'x')", [(4, "x"), (4, "z")]),
            ("a > 20", []), ("a = 4 AND b = 'nothing'", [])):
        with case(f"read: clustering {where}"):
            same(rows(session.execute(f"SELECT a, b FROM wide WHERE p = 1 AND {where}")), wanted)
    with case("read: clustering range with bound values"):
        select = session.prepare("SELECT a FROM wide WHERE p = ? AND a >= ? AND a < ? LIMIT ?")
        same(rows(session.execute(select, [1, 3, 6, 4])), [(5,), (5,), (5,), (4,)])
    with case("read: ORDER BY against and along the table's order"):
        same(rows(session.execute("SELECT a, b FROM wide WHERE p = 1 ORDER BY a ASC LIMIT 4")), [(0, "z"), (0, "y"), (0, "x"), (1, "z")])
        same(rows(session.execute("SELECT a FROM wide WHERE p = 1 ORDER BY a DESC, b ASC LIMIT 1")), [(9,)])
        same(rows(session.execute("SELECT a, b FROM wide WHERE p = 1 AND a < 2 ORDER BY a ASC, b DESC")),
             [(a, b) for a in (0, 1) for b in "zyx"])
    with case("read: LIMIT, in one partition and over all"):
        same(len(rows(session.execute("SELECT a FROM wide WHERE p = 1 LIMIT 7"))), 7)
        same(len(rows(session.execute("SELECT a FROM wide LIMIT 47"))), 47)
        same(len(rows(session.execute("SELECT a FROM wide"))), 90)
    with case("read: IN on the partition key, each partition whole and ordered"):
        got = rows(session.execute("SELECT p, a, b FROM wide WHERE p IN (2, 0, 77)"))
        same(sorted(got), sorted((p, a, b) for p in (0, 2) for a in range(10) for b in "xyz"))
        for p in (0, 2):
            same([row[1:] for row in got if row[0] == p], [(a, b) for a in range(9, -1, -1) for b in "xyz"])
        select = session.prepare("SELECT p, a FROM wide WHERE p IN ? AND a = 3")
        same({row[0] for row in session.execute(select, [[0, 1]])}, {0, 1})
    with case("read: count(*) and DISTINCT"):
        same(session.execute("SELECT count(*) FROM wide WHERE p = 1").one()[0], 30)
        same(session.execute("SELECT count(*) FROM wide").one().count, 90)
        same(sorted(rows(session.execute("SELECT DISTINCT p FROM wide"))), [(0,), (1,), (2,)])
    with case("read: aliases and the column names of a result"):
        result = session.execute("SELECT a AS x, b FROM wide WHERE p = 1 LIMIT 1")
        same(result.column_names, ["x", "b"])
        same(session.execute("SELECT * FROM wide LIMIT 1").column_names, ["p", "a", "b", "s", "v"])
    with case("read: a static column belongs to the partition"):
        session.execute("UPDATE wide SET s = 'shared' WHERE p = 2")
        same({row[0] for row in session.execute("SELECT s FROM wide WHERE p = 2")}, {"shared"})
        same({row[0] for row in session.execute("SELECT s FROM wide WHERE p = 1")}, {None})
    with case("read: a filter without an index is refused"):
        refused(InvalidRequest, session.execute, "SELECT * FROM wide WHERE v = 1")
        refused(InvalidRequest, session.execute, "SELECT * FROM wide WHERE p = 1 AND b = 'x'")
    with case("read: writetime and ttl of a cell"):
        session.execute("INSERT INTO used (id, v) VALUES (50, 1) USING TIMESTAMP 1234567 AND TTL 5000")
        row = session.execute("SELECT writetime(v), ttl(v) FROM used WHERE id = 50").one()
        same(row[0], 1234567)
        assert 4900 < row[1] <= 5000, row


def paging(cluster, session, ks):
    with case("paging: 1050 rows of one partition by 100"):
        session.execute("CREATE TABLE pages (p int, c int, v text, PRIMARY KEY (p, c))")
        insert = session.prepare("INSERT INTO pages (p, c, v) VALUES (?, ?, ?)")
        execute_concurrent_with_args(session, insert, [(1, c, f"value {c}") for c in range(1050)], concurrency=64)
        result = session.execute(SimpleStatement("SELECT c FROM pages WHERE p = 1", fetch_size=100))
        assert result.has_more_pages and len(result.current_rows) == 100
        same([row.c for row in result], list(range(1050)))
    with case("paging: prepared, and by the pages themselves"):
        select = session.prepare("SELECT c FROM pages WHERE p = ?")
        select.fetch_size = 500
        result = session.execute(select, [1])
        sizes = [len(result.current_rows)]
        while result.has_more_pages:
            result.fetch_next_page()
            sizes.append(len(result.current_rows))
        same([size for size in sizes if size], [500, 500, 50])
    with case("paging: resume from a paging state on another session"):
        statement = SimpleStatement("SELECT c FROM pages WHERE p = 1", fetch_size=400)
        state = session.execute(statement).paging_state
        assert state
        other = new_cluster()
        try:
            same(next(iter(other.connect(ks).execute(statement, paging_state=state))).c, 400)
        finally:
            other.shutdown()
    with case("paging: with LIMIT, range and reversed order"):
        statement = SimpleStatement("SELECT c FROM pages WHERE p = 1 AND c >= 100 AND c < 900 ORDER BY c DESC LIMIT 333", fetch_size=50)
        same([row.c for row in session.execute(statement)], list(range(899, 566, -1)))
    with case("paging: a full scan over many partitions, every row once"):
        execute_concurrent_with_args(session, insert, [(p, c, "x") for p in range(1000, 1300) for c in range(3)], concurrency=64)
        got = rows(session.execute(SimpleStatement("SELECT p, c FROM pages", fetch_size=77)))
        same(len(got), 1050 + 900)
        same(len(set(got)), len(got))
    with case("paging: IN over partitions"):
        statement = SimpleStatement("SELECT p, c FROM pages WHERE p IN (1000, 1001, 1002, 1003)", fetch_size=5)
        same(sorted(rows(session.execute(statement))), [(p, c) for p in range(1000, 1004) for c in range(3)])
    with case("paging: fetch size of exactly the rows, and without paging"):
        result = session.execute(SimpleStatement("SELECT c FROM pages WHERE p = 1", fetch_size=1050))
        same(len(list(result)), 1050)
        result = session.execute(SimpleStatement("SELECT c FROM pages WHERE p = 1", fetch_size=None))
        assert not result.has_more_pages
        same(len(result.current_rows), 1050)
    with case("paging: count(*) is not paged"):
        same(session.execute(SimpleStatement("SELECT count(*) FROM pages", fetch_size=10)).one()[0], 1950)
    with case("scan: token() ranges around the ring cover every row once"):
        ring = sorted(cluster.metadata.token_map.token_to_host_owner)
        bounds = [token.value for token in ring]
        scan = session.prepare("SELECT token(p) AS t, p, c FROM pages WHERE token(p) > ? AND token(p) <= ?")
        ranges = [(-2 ** 63, bounds[0])] + list(zip(bounds, bounds[1:])) + [(bounds[-1], 2 ** 63 - 1)]
        got = []
        for low, high in ranges:
            part = list(session.execute(scan, [low, high]))
            assert all(low < row.t <= high for row in part)
            same([row.t for row in part], sorted(row.t for row in part))
            got += [(row.p, row.c) for row in part]
        same(len(got), 1950)
        same(len(set(got)), 1950)
    with case("scan: a whole table comes in token order"):
        tokens = [row[0] for row in session.execute("SELECT token(p) FROM pages")]
        same(tokens, sorted(tokens))


def writing(cluster, session, ks):
    with case("write: UPDATE makes a row, DELETE takes columns, rows and partitions"):
        session.execute("CREATE TABLE w (p int, c int, v int, l list<int>, s set<int>, m map<text, int>, PRIMARY KEY (p, c))")
        session.execute("UPDATE w SET v = 1 WHERE p = 1 AND c = 1")
        session.execute("UPDATE w SET v = 2 WHERE p = 1 AND c = 2")
        session.execute("INSERT INTO w (p, c, v) VALUES (1, 3, 3)")
        session.execute("DELETE v FROM w WHERE p = 1 AND c = 3")
        same(rows(session.execute("SELECT c, v FROM w WHERE p = 1")), [(1, 1), (2, 2), (3, None)])
        session.execute("DELETE FROM w WHERE p = 1 AND c = 2")
        same(rows(session.execute("SELECT c FROM w WHERE p = 1")), [(1,), (3,)])
        session.execute("DELETE FROM w WHERE p = 1")
        same(rows(session.execute("SELECT c FROM w WHERE p = 1")), [])
    with case("write: a row of UPDATE alone ends with its last column, a row of INSERT does not"):
        session.execute("UPDATE w SET v = 1 WHERE p = 2 AND c = 1")
        session.execute("INSERT INTO w (p, c, v) VALUES (2, 2, 1)")
        session.execute("UPDATE w SET v = null WHERE p = 2 AND c = 1")
        session.execute("UPDATE w SET v = null WHERE p = 2 AND c = 2")
        same(rows(session.execute("SELECT c FROM w WHERE p = 2")), [(2,)])
    with case("write: DELETE of a clustering range"):
        for c in range(10):
            session.execute(f"INSERT INTO w (p, c, v) VALUES (3, {c}, 0)")
        session.execute("DELETE FROM w WHERE p = 3 AND c >= 2 AND c < 8")
        same(rows(session.execute("SELECT c FROM w WHERE p = 3")), [(0,), (1,), (8,), (9,)])
    with case("write: the newer timestamp wins, whatever the order of arrival"):
        session.execute("INSERT INTO w (p, c, v) VALUES (4, 1, 10) USING TIMESTAMP 2000")
        session.execute("INSERT INTO w (p, c, v) VALUES (4, 1, 20) USING TIMESTAMP 1000")
        same(rows(session.execute("SELECT v FROM w WHERE p = 4")), [(10,)])
        session.execute("DELETE FROM w USING TIMESTAMP 1500 WHERE p = 4 AND c = 1")
        same(rows(session.execute("SELECT v FROM w WHERE p = 4")), [(10,)])
        session.execute("DELETE FROM w USING TIMESTAMP 3000 WHERE p = 4 AND c = 1")
        same(rows(session.execute("SELECT v FROM w WHERE p = 4")), [])
    with case("write: collections grow and shrink in place"):
        session.execute("INSERT INTO w (p, c, l, s, m) VALUES (5, 1, [1], {1}, {'a': 1})")
        session.execute("UPDATE w SET l = l + [2, 3], s = s + {2}, m = m + {'b': 2} WHERE p = 5 AND c = 1")
        session.execute("UPDATE w SET l = [0] + l, s = s - {1}, m['c'] = 3 WHERE p = 5 AND c = 1")
        session.execute("DELETE m['a'] FROM w WHERE p = 5 AND c = 1")
        row = session.execute("SELECT l, s, m FROM w WHERE p = 5").one()
        same((row.l, row.s, row.m), ([0, 1, 2, 3], {2}, {"b": 2, "c": 3}))
    with case("write: the client's timestamp is the cell's"):
        session.execute("INSERT INTO w (p, c, v) VALUES (6, 1, 1)")
        stamp = session.execute("SELECT writetime(v) FROM w WHERE p = 6").one()[0]
        assert abs(stamp / 1e6 - time.time()) < 60, stamp
    with case("write: IF NOT EXISTS, applied and not"):
        result = session.execute("INSERT INTO w (p, c, v) VALUES (7, 1, 1) IF NOT EXISTS")
        same(result.was_applied, True)
        same(result.column_names, ["[applied]"])
        result = session.execute("INSERT INTO w (p, c, v) VALUES (7, 1, 2) IF NOT EXISTS")
        same(result.was_applied, False)
        row = result.one()
        same((row.p, row.c, row.v), (7, 1, 1))
        insert = session.prepare("INSERT INTO w (p, c, v) VALUES (?, ?, ?) IF NOT EXISTS")
        same(session.execute(insert, [7, 2, 5]).was_applied, True)
        same(session.execute(insert, [7, 2, 6]).was_applied, False)
        same(rows(session.execute("SELECT v FROM w WHERE p = 7")), [(1,), (5,)])
    with case("write: counters"):
        session.execute("CREATE TABLE counters (id text PRIMARY KEY, n counter, m counter)")
        session.execute("UPDATE counters SET n = n + 5 WHERE id = 'a'")
        session.execute(session.prepare("UPDATE counters SET n = n - ?, m = m + ? WHERE id = ?"), [7, 1, "a"])
        same(rows(session.execute("SELECT n, m FROM counters WHERE id = 'a'")), [(-2, 1)])
        refused(InvalidRequest, session.execute, "INSERT INTO counters (id, n) VALUES ('a', 1)")
    for kind, name in ((BatchType.LOGGED, "logged"), (BatchType.UNLOGGED, "unlogged")):
        with case(f"batch: {name}, prepared and simple statements together"):
            insert = session.prepare("INSERT INTO w (p, c, v) VALUES (?, ?, ?)")
            batch = BatchStatement(kind)
            for c in range(50):
                batch.add(insert, [100 + kind.value, c, c])
            batch.add(SimpleStatement("INSERT INTO w (p, c, v) VALUES (%s, %s, %s)"), [100 + kind.value, 50, 50])
            batch.add(SimpleStatement(f"DELETE FROM w WHERE p = {100 + kind.value} AND c = 51"))
            session.execute(batch)
            same(rows(session.execute(f"SELECT c, v FROM w WHERE p = {100 + kind.value}")), [(c, c) for c in range(51)])
    with case("batch: counters"):
        batch = BatchStatement(BatchType.COUNTER)
        update = session.prepare("UPDATE counters SET n = n + ? WHERE id = ?")
        for number in range(10):
            batch.add(update, [number, "batch"])
        session.execute(batch)
        same(rows(session.execute("SELECT n FROM counters WHERE id = 'batch'")), [(45,)])
    with case("batch: counters and others do not mix"):
        batch = BatchStatement(BatchType.LOGGED)
        batch.add(SimpleStatement("UPDATE counters SET n = n + 1 WHERE id = 'mixed'"))
        refused(InvalidRequest, session.execute, batch)
    with case("batch: as text, with its own timestamp"):
        session.execute("BEGIN BATCH USING TIMESTAMP 777 INSERT INTO w (p, c, v) VALUES (200, 1, 1); "
                        "UPDATE w SET v = 2 WHERE p = 200 AND c = 2; APPLY BATCH")
        same(rows(session.execute("SELECT c, v, writetime(v) FROM w WHERE p = 200")), [(1, 1, 777), (2, 2, 777)])
    with case("batch: a failing statement fails it whole"):
        batch = BatchStatement()
        batch.add(SimpleStatement("INSERT INTO w (p, c, v) VALUES (201, 1, 1)"))
        batch.add(SimpleStatement("INSERT INTO w (p, v) VALUES (201, 1)"))
        refused(InvalidRequest, session.execute, batch)
        same(rows(session.execute("SELECT * FROM w WHERE p = 201")), [])
    with case("write: a null or missing key is refused"):
        insert = session.prepare("INSERT INTO w (p, c, v) VALUES (?, ?, ?)")
        refused(InvalidRequest, session.execute, insert, [None, 1, 1])
        refused(InvalidRequest, session.execute, insert, [1, None, 1])
        refused(InvalidRequest, session.execute, "INSERT INTO w (p, v) VALUES (1, 1)")
        refused(InvalidRequest, session.execute, "UPDATE w SET v = 1 WHERE p = 1")
    with case("write: large values, whole across segments"):
        session.execute("CREATE TABLE big (id int PRIMARY KEY, v blob, t text)")
        insert = session.prepare("INSERT INTO big (id, v, t) VALUES (?, ?, ?)")
        noise = bytes((i * i * 31 + (i >> 7)) & 0xFF for i in range(1 << 20))
        for index, size in enumerate((131000, 131071, 131072, 200000, 1 << 20)):
            session.execute(insert, [index, noise[:size], "é" * 1000])
            row = session.execute(f"SELECT v, t FROM big WHERE id = {index}").one()
            assert row.v == noise[:size] and row.t == "é" * 1000, size
        same(sum(len(row.v) for row in session.execute("SELECT v FROM big")), 131000 + 131071 + 131072 + 200000 + (1 << 20))
    with case("write: TRUNCATE"):
        session.execute("TRUNCATE w")
        same(rows(session.execute("SELECT * FROM w")), [])
        session.execute("TRUNCATE TABLE counters")
        same(rows(session.execute("SELECT * FROM counters")), [])


def altering(cluster, session, ks):
    with case("schema: ALTER TABLE adds, drops and renames"):
        session.execute("CREATE TABLE alters (id int PRIMARY KEY, a int, b text)")
        session.execute("INSERT INTO alters (id, a, b) VALUES (1, 2, 'three')")
        session.execute("ALTER TABLE alters ADD c list<int>")
        session.execute("ALTER TABLE alters DROP a")
        same(list(cluster.metadata.keyspaces[ks].tables["alters"].columns), ["id", "b", "c"])
        same(session.execute("SELECT * FROM alters").one(), (1, "three", None))
        session.execute("ALTER TABLE alters RENAME id TO key")
        same(session.execute("SELECT key FROM alters").one(), (1,))
        refused(InvalidRequest, session.execute, "ALTER TABLE alters ADD b text")
        refused(InvalidRequest, session.execute, "SELECT a FROM alters")
    with case("schema: ALTER TYPE adds a field, old values read it as null"):
        session.execute("CREATE TYPE grows (a int)")
        session.execute("CREATE TABLE grown (id int PRIMARY KEY, v frozen<grows>)")
        session.execute("INSERT INTO grown (id, v) VALUES (1, {a: 1})")
        session.execute("ALTER TYPE grows ADD b text")
        same(list(cluster.metadata.keyspaces[ks].user_types["grows"].field_names), ["a", "b"])
        same(session.execute("SELECT v FROM grown").one()[0], (1, None))
        refused(InvalidRequest, session.execute, "DROP TYPE grows")
        session.execute("DROP TABLE grown")
        session.execute("DROP TYPE grows")
        assert "grows" not in cluster.metadata.keyspaces[ks].user_types
    with case("schema: IF NOT EXISTS and IF EXISTS"):
        session.execute("CREATE TABLE IF NOT EXISTS alters (id int PRIMARY KEY)")
        refused(AlreadyExists, session.execute, "CREATE TABLE alters (id int PRIMARY KEY)")
        session.execute("DROP TABLE alters")
        session.execute("DROP TABLE IF EXISTS alters")
        refused(InvalidRequest, session.execute, "DROP TABLE alters")
        assert "alters" not in cluster.metadata.keyspaces[ks].tables
    with case("schema: table options"):
        session.execute("CREATE TABLE options (id int PRIMARY KEY) WITH comment = 'it''s ours' AND gc_grace_seconds = 1234 "
                        "AND default_time_to_live = 60 AND compaction = {'class': 'SizeTieredCompactionStrategy'} "
                        "AND compression = {'class': 'LZ4Compressor'}")
        table = cluster.metadata.keyspaces[ks].tables["options"]
        same(table.options["comment"], "it's ours")
        same(table.options["gc_grace_seconds"], 1234)
        same(table.options["default_time_to_live"], 60)
    with case("schema: the driver can write the whole keyspace as CQL, and the server takes it back"):
        text = cluster.metadata.keyspaces[ks].export_as_string()
        for name in ("CREATE KEYSPACE", "CREATE TYPE", f"CREATE TABLE {ks}.wide"):
            assert name in text, name
        wide = cluster.metadata.keyspaces[ks].tables["wide"].as_cql_query()
        session.execute(wide.replace(f"{ks}.wide", f"{ks}.wide_copy"))
        copy = cluster.metadata.keyspaces[ks].tables["wide_copy"]
        same([(c.name, c.cql_type) for c in copy.columns.values()],
             [(c.name, c.cql_type) for c in cluster.metadata.keyspaces[ks].tables["wide"].columns.values()])
    with case("schema: an event tells another client of a new table, a change and a drop"):
        other = new_cluster()
        try:
            own = other.connect()
            session.execute("CREATE TABLE told (id int PRIMARY KEY)")
            eventually(lambda: "told" in other.metadata.keyspaces[ks].tables)
            session.execute("ALTER TABLE told ADD v int")
            eventually(lambda: "v" in other.metadata.keyspaces[ks].tables["told"].columns)
            session.execute("DROP TABLE told")
            eventually(lambda: "told" not in other.metadata.keyspaces[ks].tables)
            own.shutdown()
        finally:
            other.shutdown()
    with case("schema: all nodes have one schema version"):
        assert cluster.control_connection.wait_for_schema_agreement(wait_time=10)
        versions = {row[0] for host in cluster.metadata.all_hosts() for table in ("local", "peers_v2")
                    for row in session.execute(f"SELECT schema_version FROM system.{table}", host=host)}
        same(len(versions), 1)
    with case("schema: a full refresh reads system_schema again"):
        cluster.refresh_schema_metadata()
        assert {"system", "system_schema", ks} <= set(cluster.metadata.keyspaces)
        assert "local" in cluster.metadata.keyspaces["system"].tables
    with case("schema: errors carry their codes"):
        refused(SyntaxException, session.execute, "SELECT FROM WHERE")
        refused(InvalidRequest, session.execute, "SELECT * FROM no_such_keyspace.t")
        refused(InvalidRequest, session.execute, "INSERT INTO used (id, nothing) VALUES (1, 1)")
        refused((InvalidRequest, SyntaxException), session.execute, "CREATE TABLE broken (a int)")


def bulk(cluster, session, ks):
    with case(f"bulk: execute_concurrent_with_args of {options.rows} rows, and every one back"):
        session.execute("CREATE TABLE bulk (k bigint PRIMARY KEY, v blob, t text)")
        insert = session.prepare("INSERT INTO bulk (k, v, t) VALUES (?, ?, ?)")
        results = execute_concurrent_with_args(
            session, insert, ((k, k.to_bytes(32, "big"), f"row {k}") for k in range(options.rows)), concurrency=256)
        same(sum(1 for success, _ in results if success), options.rows)
        seen = 0
        for row in session.execute(SimpleStatement("SELECT k, v, t FROM bulk", fetch_size=1000)):
            assert row.v == row.k.to_bytes(32, "big") and row.t == f"row {row.k}", row
            seen += 1
        same(seen, options.rows)
    with case("bulk: concurrent reads by key"):
        select = session.prepare("SELECT k, t FROM bulk WHERE k = ?")
        wanted = range(0, options.rows, 10)
        results = execute_concurrent_with_args(session, select, ((k,) for k in wanted), concurrency=128)
        same([result.one().t for success, result in results], [f"row {k}" for k in wanted])
    with case("bulk: simple statements at once"):
        results = execute_concurrent(session, [(f"INSERT INTO used (id, v) VALUES ({i}, {i})", None) for i in range(1000, 1300)], concurrency=50)
        assert all(success for success, _ in results)


def several_nodes(cluster, session, ks):
    with case("ring: every token has an owner and every node has tokens"):
        owners = cluster.metadata.token_map.token_to_host_owner
        same(len(set(owners.values())), options.nodes)
        asked = cluster.metadata.all_hosts()[0]
        local = session.execute("SELECT tokens FROM system.local", host=asked).one().tokens
        peers = [row.tokens for row in session.execute("SELECT tokens FROM system.peers_v2", host=asked)]
        same(len(owners), len(local) + sum(map(len, peers)))
        same(cluster.metadata.partitioner, "org.apache.cassandra.dht.Murmur3Partitioner")
    with case("ring: replicas of keys spread over the nodes"):
        session.execute("CREATE TABLE ring (k int PRIMARY KEY, v int)")
        insert = session.prepare("INSERT INTO ring (k, v) VALUES (?, ?)")
        seen = set()
        for k in range(300):
            bound = insert.bind([k, k])
            replicas = cluster.metadata.get_replicas(ks, bound.routing_key)
            same(len(replicas), 1)
            seen.add(replicas[0])
            session.execute(bound)
        same(len(seen), options.nodes)
    for host in sorted(cluster.metadata.all_hosts(), key=lambda host: host.address):
        with case(f"ring: {host.address} coordinates for rows of every node"):
            own = new_cluster(contact_points=[host.address], execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(
                load_balancing_policy=WhiteListRoundRobinPolicy([host.address]), request_timeout=60)})
            try:
                its = own.connect(ks)
                same(sorted(rows(its.execute("SELECT k, v FROM ring"))), [(k, k) for k in range(300)])
                select = its.prepare("SELECT v FROM ring WHERE k = ?")
                same([its.execute(select, [k]).one().v for k in range(0, 300, 10)], list(range(0, 300, 10)))
                same(its.execute("SELECT host_id FROM system.local").one().host_id, host.host_id)
            finally:
                own.shutdown()


def authenticating():
    user, _, password = options.auth.partition(":")
    for name, provider in (("a wrong password", PlainTextAuthProvider(user, password + "x")),
                           ("an unknown user", PlainTextAuthProvider(user + "x", password)), ("no credentials", None)):
        with case(f"auth: {name} is refused"):
            other = new_cluster(auth_provider=provider)
            try:
                error = refused((NoHostAvailable, AuthenticationFailed, Unauthorized), other.connect)
                causes = list(error.errors.values()) if isinstance(error, NoHostAvailable) else [error]
                assert any(isinstance(cause, AuthenticationFailed) for cause in causes), causes
            finally:
                other.shutdown()


def securing():
    import socket
    with case("tls: the certificate is for this address"):
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=options.ca)
        if options.cert:
            context.load_cert_chain(options.cert, options.key)
        with socket.create_connection((options.host, options.port), timeout=10) as raw:
            with context.wrap_socket(raw, server_hostname=options.host) as tls:
                assert tls.version() in ("TLSv1.2", "TLSv1.3"), tls.version()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with case(f"tls: {version.name} is spoken"):
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=options.ca)
            context.check_hostname = False
            context.minimum_version = context.maximum_version = version
            if options.cert:
                context.load_cert_chain(options.cert, options.key)
            other = new_cluster(ssl_context=context)
            try:
                other.connect().execute("SELECT key FROM system.local")
            finally:
                other.shutdown()
    with case("tls: a client with another CA does not connect"):
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        context.check_hostname = False
        other = new_cluster(ssl_context=context)
        try:
            refused(NoHostAvailable, other.connect)
        finally:
            other.shutdown()
    with case("tls: a client without TLS does not connect"):
        other = new_cluster(ssl_context=None, connect_timeout=3, control_connection_timeout=3)
        try:
            refused(NoHostAvailable, other.connect)
        finally:
            other.shutdown()


def main():
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9042)
    parser.add_argument("--version", type=int, default=5, choices=[4, 5])
    parser.add_argument("--newest", type=int, default=5, choices=[4, 5], help="what the server would choose")
    parser.add_argument("--compression", default="none", choices=["none", "lz4"])
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--auth")
    parser.add_argument("--ca")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--rows", type=int, default=10000)
    parser.add_argument("--no-vectors", action="store_true", help="for servers older than Cassandra 5")
    parser.add_argument("--only", help="report only cases with this text in their names (all are run)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sys.setswitchinterval(0.0005)  # the driver's event loop is a thread of its own: it shall not wait 5 ms for its turn

    cluster = new_cluster()
    dicts = ExecutionProfile(row_factory=dict_factory, request_timeout=60)
    session = None
    with case("connect"):
        session = cluster.connect()
        cluster.add_execution_profile("dicts", dicts)
    if session is not None:
        ks = f"peer{uuid.uuid4().hex[:10]}"
        for part in (lambda: connecting(cluster, session), lambda: keyspaces(cluster, session, ks),
                     lambda: types(cluster, session, ks), lambda: schema_objects(cluster, session, ks),
                     lambda: preparing(cluster, session, ks),
                     lambda: reading(cluster, session, ks), lambda: paging(cluster, session, ks),
                     lambda: writing(cluster, session, ks), lambda: altering(cluster, session, ks),
                     lambda: bulk(cluster, session, ks), lambda: several_nodes(cluster, session, ks)):
            try:
                part()
            except Exception as error:  # between cases, so only after one of them failed
                print(f"# {type(error).__name__}: {error}")
        if options.auth:
            authenticating()
        if options.ca:
            securing()
        with case("keyspace: DROP takes everything with it"):
            session.execute(f"DROP KEYSPACE {ks}")
            eventually(lambda: ks not in cluster.metadata.keyspaces)
            refused(InvalidRequest, session.execute, f"SELECT * FROM {ks}.bulk")
    cluster.shutdown()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
