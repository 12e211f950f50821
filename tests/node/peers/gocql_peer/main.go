// SPDX-License-Identifier: Apache-2.0

// The gocql driver as Debian ships it (1.3, protocol v4) as a second judge of a CQL server: every
// case states what a real Cassandra does. One line a case, then `N passed, N failed`.
//
//	gocql_peer -host H -port P [-compression lz4] [-nodes N] [-auth USER:PASSWORD] [-ca FILE] [-rows N]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/gocql/gocql/lz4"
	"gopkg.in/inf.v0"
)

var (
	host        = flag.String("host", "127.0.0.1", "")
	port        = flag.Int("port", 9042, "")
	nodes       = flag.Int("nodes", 1, "")
	auth        = flag.String("auth", "", "USER:PASSWORD")
	ca          = flag.String("ca", "", "CA certificate: connect with TLS and verify the host")
	compression = flag.String("compression", "none", "none or lz4")
	rowCount    = flag.Int("rows", 10000, "")
)

var passed, failed int

func check(name string, body func() error) {
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return body()
	}()
	if err != nil {
		failed++
		fmt.Printf("FAIL gocql %s: %v\n", name, err)
		return
	}
	passed++
	fmt.Printf("ok gocql %s\n", name)
}

func same(got, wanted interface{}) error {
	if !reflect.DeepEqual(got, wanted) {
		return fmt.Errorf("got %v, wanted %v", got, wanted)
	}
	return nil
}

func newCluster(keyspace string) *gocql.ClusterConfig {
	cluster := gocql.NewCluster(*host)
	cluster.Port = *port
	cluster.ProtoVersion = 4
	cluster.Keyspace = keyspace
	cluster.Timeout = 20 * time.Second
	cluster.ConnectTimeout = 10 * time.Second
	cluster.Consistency = gocql.One
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	if *compression == "lz4" {
		cluster.Compressor = lz4.LZ4Compressor{}
	}
	if *auth != "" {
		parts := strings.SplitN(*auth, ":", 2)
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: parts[0], Password: parts[1]}
	}
	if *ca != "" {
		cluster.SslOpts = &gocql.SslOptions{CaPath: *ca, EnableHostVerification: true}
	}
	return cluster
}

func ints(iter *gocql.Iter) ([]int, error) {
	values := []int{}
	var value int
	for iter.Scan(&value) {
		values = append(values, value)
	}
	return values, iter.Close()
}

func wantInts(iter *gocql.Iter, wanted []int) error {
	got, err := ints(iter)
	if err != nil {
		return err
	}
	return same(got, wanted)
}

func refusedBy(err error, code int) error {
	var request gocql.RequestError
	if err == nil {
		return errors.New("it was not refused")
	}
	if !errors.As(err, &request) || request.Code() != code {
		return fmt.Errorf("not the error 0x%04x: %v", code, err)
	}
	return nil
}

type address struct {
	Street string   `cql:"street"`
	Zip    *int     `cql:"zip"`
	Tags   []string `cql:"tags"`
}

func connecting(session *gocql.Session) {
	check("connect: system.local and system.peers", func() error {
		var name, partitioner string
		var tokens []string
		var id gocql.UUID
		if err := session.Query("SELECT cluster_name, partitioner, tokens, host_id FROM system.local WHERE key = 'local'").
			Scan(&name, &partitioner, &tokens, &id); err != nil {
			return err
		}
		if name == "" || len(tokens) == 0 {
			return errors.New("system.local is empty")
		}
		return same([]interface{}{partitioner, session.Query("SELECT peer FROM system.peers").Iter().NumRows()},
			[]interface{}{"org.apache.cassandra.dht.Murmur3Partitioner", *nodes - 1})
	})
}

func schema(session *gocql.Session, ks string) {
	check("schema: keyspace, type and tables", func() error {
		for _, text := range []string{
			"CREATE TYPE address (street text, zip int, tags frozen<set<text>>)",
			`CREATE TABLE types (id int PRIMARY KEY, c_ascii ascii, c_bigint bigint, c_blob blob, c_boolean boolean, c_date date,
				c_decimal decimal, c_double double, c_duration duration, c_float float, c_inet inet, c_int int, c_smallint smallint,
				c_text text, c_time time, c_timestamp timestamp, c_timeuuid timeuuid, c_tinyint tinyint, c_uuid uuid, c_varint varint,
				c_list list<int>, c_set set<text>, c_map map<text, bigint>, c_deep map<int, frozen<list<frozen<set<text>>>>>,
				c_tuple tuple<int, text>, c_udt frozen<address>, c_udts list<frozen<address>>)`,
			"CREATE TABLE wide (p int, c int, v text, PRIMARY KEY (p, c)) WITH CLUSTERING ORDER BY (c DESC)",
			"CREATE TABLE counts (id text PRIMARY KEY, n counter)",
		} {
			if err := session.Query(text).Exec(); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return session.AwaitSchemaAgreement(context.Background())
	})
	check("schema: the driver's metadata, once an event has told it to look again", func() error {
		meta, err := session.KeyspaceMetadata(ks)
		for end := time.Now().Add(15 * time.Second); err == nil && meta.Tables["counts"] == nil && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
			meta, err = session.KeyspaceMetadata(ks)
		}
		if err != nil {
			return err
		}
		wide := meta.Tables["wide"]
		if wide == nil || meta.Tables["types"] == nil || meta.UserTypes["address"] == nil {
			return fmt.Errorf("tables %v, types %v", meta.Tables, meta.UserTypes)
		}
		return same([]interface{}{wide.PartitionKey[0].Name, wide.ClusteringColumns[0].Name, wide.ClusteringColumns[0].Order,
			wide.Columns["v"].Type.Type(), strings.HasSuffix(meta.StrategyClass, "SimpleStrategy")},
			[]interface{}{"p", "c", gocql.DESC, gocql.TypeText, true})
	})
	check("schema: errors have their codes", func() error {
		if err := refusedBy(session.Query("SELEKT").Exec(), gocql.ErrCodeSyntax); err != nil {
			return err
		}
		if err := refusedBy(session.Query("SELECT * FROM nothing").Exec(), gocql.ErrCodeInvalid); err != nil {
			return err
		}
		return refusedBy(session.Query("CREATE TABLE wide (id int PRIMARY KEY)").Exec(), gocql.ErrCodeAlreadyExists)
	})
}

func types(session *gocql.Session) {
	uuid, _ := gocql.ParseUUID("550e8400-e29b-41d4-a716-446655440000")
	timeuuid, _ := gocql.ParseUUID("f4a70c40-3f5f-11ee-be56-0242ac120002")
	big200 := new(big.Int).Lsh(big.NewInt(-1), 200)
	zip := 12345
	home := address{Street: "Main", Zip: &zip, Tags: []string{"home", "work"}}
	values := []struct {
		column  string
		value   interface{}
		literal string
	}{
		{"c_ascii", "plain", "'plain'"},
		{"c_bigint", int64(-1 << 63), "-9223372036854775808"},
		{"c_blob", []byte{0, 255, 128}, "0x00ff80"},
		{"c_boolean", true, "true"},
		{"c_date", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), "'2024-02-29'"},
		{"c_decimal", inf.NewDec(-1234567890123, 5), "-12345678.90123"},
		{"c_double", -2.5e-300, "-2.5e-300"},
		{"c_duration", gocql.Duration{Months: 14, Days: 3, Nanoseconds: 3723000000004}, "14mo3d1h2m3s4ns"},
		{"c_float", float32(3.14159), "3.14159"},
		{"c_inet", net.ParseIP("2001:db8::1"), "'2001:db8::1'"},
		{"c_int", -2147483648, "-2147483648"},
		{"c_smallint", int16(-32768), "-32768"},
		{"c_text", "it's zażółć", "'it''s zażółć'"},
		{"c_time", time.Duration(86399999999999), "'23:59:59.999999999'"},
		{"c_timestamp", time.Date(2024, 1, 2, 3, 4, 5, 678000000, time.UTC), "'2024-01-02 03:04:05.678+0000'"},
		{"c_timeuuid", timeuuid, timeuuid.String()},
		{"c_tinyint", int8(-128), "-128"},
		{"c_uuid", uuid, uuid.String()},
		{"c_varint", big200, big200.String()},
		{"c_list", []int{3, 1, 2}, "[3, 1, 2]"},
		{"c_set", []string{"a", "b"}, "{'a', 'b'}"},
		{"c_map", map[string]int64{"x": 1, "y": -2}, "{'x': 1, 'y': -2}"},
		{"c_deep", map[int][][]string{7: {{"a", "b"}, {"c"}}}, "{7: [{'a', 'b'}, {'c'}]}"},
		{"c_udt", home, "{street: 'Main', zip: 12345, tags: {'home', 'work'}}"},
		{"c_udts", []address{home, {Street: "Side"}}, "[{street: 'Main', zip: 12345, tags: {'home', 'work'}}, {street: 'Side'}]"},
	}
	show := func(value interface{}) string {
		switch it := value.(type) {
		case time.Time:
			return it.UTC().Format(time.RFC3339Nano)
		case address, []address:
			text := strings.Builder{}
			list, isList := it.([]address)
			if !isList {
				list = []address{it.(address)}
			}
			for _, one := range list {
				zip := "null"
				if one.Zip != nil {
					zip = fmt.Sprint(*one.Zip)
				}
				fmt.Fprintf(&text, "{%s %s %v}", one.Street, zip, one.Tags)
			}
			return text.String()
		case *inf.Dec:
			return it.String()
		case *big.Int:
			return it.String()
		}
		return fmt.Sprintf("%v", value)
	}
	for index, one := range values {
		one, index := one, index
		check("types: "+one.column[2:]+" by value and by literal", func() error {
			if err := session.Query("INSERT INTO types (id, "+one.column+") VALUES (?, ?)", index, one.value).Exec(); err != nil {
				return err
			}
			if err := session.Query(fmt.Sprintf("INSERT INTO types (id, %s) VALUES (%d, %s)", one.column, index+1000, one.literal)).Exec(); err != nil {
				return err
			}
			for _, id := range []int{index, index + 1000} {
				got := reflect.New(reflect.TypeOf(one.value))
				if err := session.Query("SELECT "+one.column+" FROM types WHERE id = ?", id).Scan(got.Interface()); err != nil {
					return err
				}
				if show(got.Elem().Interface()) != show(one.value) {
					return fmt.Errorf("got %s, wanted %s", show(got.Elem().Interface()), show(one.value))
				}
			}
			return nil
		})
	}
	check("types: tuple", func() error {
		if err := session.Query("INSERT INTO types (id, c_tuple) VALUES (?, (?, ?))", 500, 7, "seven").Exec(); err != nil {
			return err
		}
		var number int
		var text string
		if err := session.Query("SELECT c_tuple FROM types WHERE id = ?", 500).Scan(&number, &text); err != nil {
			return err
		}
		return same([]interface{}{number, text}, []interface{}{7, "seven"})
	})
	check("types: null and unset", func() error {
		insert := "INSERT INTO types (id, c_int, c_text) VALUES (?, ?, ?)"
		if err := session.Query(insert, 600, 5, "five").Exec(); err != nil {
			return err
		}
		if err := session.Query(insert, 600, nil, gocql.UnsetValue).Exec(); err != nil {
			return err
		}
		var number *int
		var text *string
		if err := session.Query("SELECT c_int, c_text FROM types WHERE id = ?", 600).Scan(&number, &text); err != nil {
			return err
		}
		if number != nil || text == nil || *text != "five" {
			return fmt.Errorf("got %v %v", number, text)
		}
		return nil
	})
}

func reading(session *gocql.Session) {
	check("read: rows of a partition in the table's order", func() error {
		for p := 0; p < 3; p++ {
			for c := 0; c < 40; c++ {
				if err := session.Query("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)", p, c, fmt.Sprint(c)).Exec(); err != nil {
					return err
				}
			}
		}
		return wantInts(session.Query("SELECT c FROM wide WHERE p = ? LIMIT 3", 1).Iter(), []int{39, 38, 37})
	})
	check("read: clustering ranges, IN, ORDER BY, LIMIT", func() error {
		for _, one := range []struct {
			where  string
			wanted []int
		}{
			{"c >= 3 AND c < 6", []int{5, 4, 3}}, {"c > 37", []int{39, 38}}, {"c <= 1", []int{1, 0}},
			{"c IN (1, 30, 7)", []int{30, 7, 1}}, {"c < 10 ORDER BY c ASC LIMIT 2", []int{0, 1}}, {"c = 77", []int{}},
		} {
			if err := wantInts(session.Query("SELECT c FROM wide WHERE p = ? AND "+one.where, 1).Iter(), one.wanted); err != nil {
				return fmt.Errorf("%s: %w", one.where, err)
			}
		}
		return nil
	})
	check("read: IN on the partition key", func() error {
		got, err := ints(session.Query("SELECT p FROM wide WHERE p IN (?, ?) AND c = 5", 0, 2).Iter())
		sort.Ints(got)
		if err != nil {
			return err
		}
		return same(got, []int{0, 2})
	})
	check("paging: pages of 7, and a whole scan", func() error {
		wanted := []int{}
		for c := 39; c >= 0; c-- {
			wanted = append(wanted, c)
		}
		if err := wantInts(session.Query("SELECT c FROM wide WHERE p = ?", 1).PageSize(7).Iter(), wanted); err != nil {
			return err
		}
		got, err := ints(session.Query("SELECT c FROM wide").PageSize(11).Iter())
		if err != nil {
			return err
		}
		return same(len(got), 120)
	})
	check("paging: by hand with the paging state", func() error {
		var state []byte
		total, pages := 0, 0
		for {
			iter := session.Query("SELECT c FROM wide WHERE p = ?", 1).PageSize(16).PageState(state).Iter()
			state = iter.PageState()
			total += iter.NumRows()
			pages++
			if err := iter.Close(); err != nil {
				return err
			}
			if len(state) == 0 || pages > 10 {
				break
			}
		}
		return same([]int{total, pages}, []int{40, 3})
	})
	check("scan: token ranges", func() error {
		total := 0
		bounds := []int64{-1 << 63, -1 << 61, 0, 1 << 62, 1<<63 - 1}
		for i := 0; i+1 < len(bounds); i++ {
			got, err := ints(session.Query("SELECT c FROM wide WHERE token(p) > ? AND token(p) <= ?", bounds[i], bounds[i+1]).Iter())
			if err != nil {
				return err
			}
			total += len(got)
		}
		return same(total, 120)
	})
	check("read: nothing found", func() error {
		var c int
		if err := session.Query("SELECT c FROM wide WHERE p = ? AND c = ?", 99, 99).Scan(&c); err != gocql.ErrNotFound {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

func writing(session *gocql.Session) {
	for name, kind := range map[string]gocql.BatchType{"logged": gocql.LoggedBatch, "unlogged": gocql.UnloggedBatch} {
		name, kind := name, kind
		check("batch: "+name, func() error {
			p := 100 + int(kind)
			batch := session.NewBatch(kind)
			for c := 0; c < 20; c++ {
				batch.Query("INSERT INTO wide (p, c, v) VALUES (?, ?, ?)", p, c, "batch")
			}
			batch.Query("DELETE FROM wide WHERE p = ? AND c = ?", p, 77)
			batch.Query(fmt.Sprintf("UPDATE wide SET v = 'last' WHERE p = %d AND c = 20", p))
			if err := session.ExecuteBatch(batch); err != nil {
				return err
			}
			got, err := ints(session.Query("SELECT c FROM wide WHERE p = ?", p).Iter())
			if err != nil {
				return err
			}
			return same(len(got), 21)
		})
	}
	check("batch: counters", func() error {
		batch := session.NewBatch(gocql.CounterBatch)
		for n := int64(1); n <= 4; n++ {
			batch.Query("UPDATE counts SET n = n + ? WHERE id = ?", n, "x")
		}
		if err := session.ExecuteBatch(batch); err != nil {
			return err
		}
		var n int64
		if err := session.Query("SELECT n FROM counts WHERE id = 'x'").Scan(&n); err != nil {
			return err
		}
		return same(n, int64(10))
	})
	check("write: IF NOT EXISTS, applied and not", func() error {
		insert := "INSERT INTO wide (p, c, v) VALUES (?, ?, ?) IF NOT EXISTS"
		row := map[string]interface{}{}
		applied, err := session.Query(insert, 200, 1, "first").MapScanCAS(row)
		if err != nil || !applied {
			return fmt.Errorf("first: applied %v, %v", applied, err)
		}
		row = map[string]interface{}{}
		applied, err = session.Query(insert, 200, 1, "second").MapScanCAS(row)
		if err != nil || applied {
			return fmt.Errorf("second: applied %v, %v", applied, err)
		}
		return same(row["v"], "first")
	})
	check("write: large values", func() error {
		if err := session.Query("CREATE TABLE big (id int PRIMARY KEY, v blob)").Exec(); err != nil {
			return err
		}
		for id, size := range []int{100000, 131072, 1 << 20} {
			value := bytes.Repeat([]byte("abcdefgh\x00\xff"), size/10)
			if err := session.Query("INSERT INTO big (id, v) VALUES (?, ?)", id, value).Exec(); err != nil {
				return err
			}
			var got []byte
			if err := session.Query("SELECT v FROM big WHERE id = ?", id).Scan(&got); err != nil {
				return err
			}
			if !bytes.Equal(got, value) {
				return fmt.Errorf("%d bytes came back as %d others", len(value), len(got))
			}
		}
		return nil
	})
	check(fmt.Sprintf("bulk: %d rows by 32 goroutines, and every one back", *rowCount), func() error {
		if err := session.Query("CREATE TABLE bulk (k bigint PRIMARY KEY, v blob)").Exec(); err != nil {
			return err
		}
		var next int64 = -1
		var lost atomic.Value
		var group sync.WaitGroup
		for worker := 0; worker < 32; worker++ {
			group.Add(1)
			go func() {
				defer group.Done()
				for k := atomic.AddInt64(&next, 1); k < int64(*rowCount); k = atomic.AddInt64(&next, 1) {
					if err := session.Query("INSERT INTO bulk (k, v) VALUES (?, ?)", k, []byte(fmt.Sprintf("row %d", k))).Exec(); err != nil {
						lost.Store(err)
						return
					}
				}
			}()
		}
		group.Wait()
		if err, _ := lost.Load().(error); err != nil {
			return err
		}
		iter := session.Query("SELECT k, v FROM bulk").PageSize(1000).Iter()
		seen := map[int64]bool{}
		var k int64
		var v []byte
		for iter.Scan(&k, &v) {
			if string(v) != fmt.Sprintf("row %d", k) {
				return fmt.Errorf("row %d has %q", k, v)
			}
			seen[k] = true
		}
		if err := iter.Close(); err != nil {
			return err
		}
		return same(len(seen), *rowCount)
	})
	check("write: TRUNCATE, ALTER TABLE, DROP TABLE", func() error {
		for _, text := range []string{"TRUNCATE bulk", "ALTER TABLE bulk ADD extra text", "INSERT INTO bulk (k, extra) VALUES (1, 'new')"} {
			if err := session.Query(text).Exec(); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		var extra string
		if err := session.Query("SELECT extra FROM bulk").Scan(&extra); err != nil {
			return err
		}
		if err := session.Query("DROP TABLE bulk").Exec(); err != nil {
			return err
		}
		return refusedBy(session.Query("INSERT INTO bulk (k) VALUES (2)").Exec(), gocql.ErrCodeInvalid)
	})
}

func main() {
	flag.Parse()
	gocql.Logger = quiet{}
	ks := fmt.Sprintf("gocql%x", time.Now().UnixNano())
	var session *gocql.Session
	check("connect, and create a keyspace", func() error {
		first, err := newCluster("").CreateSession()
		if err != nil {
			return err
		}
		defer first.Close()
		if err := first.Query("CREATE KEYSPACE " + ks + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}").Exec(); err != nil {
			return err
		}
		session, err = newCluster(ks).CreateSession()
		return err
	})
	if session != nil {
		connecting(session)
		schema(session, ks)
		types(session)
		reading(session)
		writing(session)
		check("keyspace: DROP", func() error { return session.Query("DROP KEYSPACE " + ks).Exec() })
		session.Close()
	}
	if *auth != "" {
		check("auth: a wrong password is refused", func() error {
			cluster := newCluster("")
			cluster.Authenticator = gocql.PasswordAuthenticator{Username: strings.SplitN(*auth, ":", 2)[0], Password: "wrong"}
			if session, err := cluster.CreateSession(); err == nil {
				session.Close()
				return errors.New("it was accepted")
			}
			return nil
		})
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

type quiet struct{}

func (quiet) Print(...interface{})          {}
func (quiet) Printf(string, ...interface{}) {}
func (quiet) Println(...interface{})        {}
