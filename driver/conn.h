/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CQR_CONN_H
#define CQR_CONN_H

/* One connection, in two halves. The reader's half belongs to the reactor: connect, TLS, startup, reading, the one
   close(). The writer's half belongs to the submitter from conn_up to its goodbye: stream ids, send blocks, what is in
   flight. They share the descriptor (through transport), the in-flight slots and a word of command bits.

   A slot: 0 EMPTY, 1 ORPHAN, 2 GONE (an orphan beyond what the ring has room for: its reply is dropped, and the connection
   is being replaced), else the op that waits for the stream's reply. The submitter stores the op (release) before
   the request is sent; the reactor exchanges it for EMPTY (acquire) at the reply; at a deadline the submitter swaps in
   ORPHAN (decision 10).

   Life (decision 12): the submitter makes it and asks the reactor to connect; the reactor says UP or DOWN; after UP
   whoever finds an error only shuts the descriptor down; the reactor reads to the end and says DOWN; the submitter settles
   every slot and says goodbye; the reactor closes and frees. */

#include "cql/handshake.h"
#include "driver/adapt.h"
#include "driver/inbox.h"
#include "driver/op.h"
#include "driver/transport.h"

struct conn_record;
struct node_stats;
struct cqlring_cluster;
struct lane;
struct pool_link;

enum { SLOT_EMPTY = 0, SLOT_ORPHAN = 1, SLOT_GONE = 2 };

/* Commands, submitter → reactor, as bits: an entry goes into the command ring only when the bits were 0. */
enum { COMMAND_CONNECT = 1, COMMAND_AUTH = 2, COMMAND_SHUT = 4, COMMAND_ARM_WRITE = 8, COMMAND_GOODBYE = 16 };

enum reader_state {
    READER_IDLE,
    READER_CONNECTING,   /* TCP */
    READER_TLS,
    READER_STARTUP,
    READER_UP,
    READER_DOWN,         /* DOWN said; waiting for the goodbye */
    READER_GONE
};

enum writer_state { WRITER_CONNECTING, WRITER_UP, WRITER_DOWN };

/* Wire memory of requests. Submitter only, so the counts are plain. Values of ops stay here until the ops are settled. */
struct send_block {
    struct send_block *next;
    uint32_t size, fill;
    struct op *ops;        /* whose values are here */
    uint32_t live_ops;
    uint32_t live_bytes;   /* of their values */
    uint32_t spans;        /* spans still to be sent */
    bool open;             /* a connection is filling it */
    bool large;            /* made for one request */
    bool squeezed;         /* compaction has been tried */
    _Alignas(16) uint8_t data[];
};

/* Bytes sealed and not yet taken by the socket. */
struct span {
    struct send_block *block;
    uint32_t from, to;
    uint32_t sealed;       /* bytes from `from` on that stand in a TLS record already */
    uint64_t seal;
    bool exact;            /* v4 without compression: frames lie in it as ops remember them */
    bool loose;            /* v4 with compression: frames are whole in it, but not where ops remember them */
    bool begun;            /* some bytes were taken */
};

enum { SPANS_MAX = 64 };

/* Which local ports may be dialled from, so that a shard-aware port leads to the shard: port % shards == shard. */
struct local_ports {
    uint16_t min, max;
    uint16_t shard, shards;          /* shards 0: any port */
    uint32_t start;                  /* where in the range to begin */
};

struct conn_writer {
    enum writer_state state;
    uint16_t *streams;               /* FIFO of free ids over twice the cap (decision 11) */
    uint32_t stream_head, stream_free, stream_count;
    uint32_t in_flight;              /* slots with an op */
    uint32_t in_flight_max;
    uint32_t orphans;
    struct send_block *open;         /* being filled; [open_from, fill) is not sealed */
    uint32_t open_from;
    uint32_t open_ops;               /* requests in the unsealed part */
    struct span spans[SPANS_MAX];
    uint32_t span_head, span_count;
    uint64_t seal_next, seal_accepted; /* all seals ≤ accepted were taken whole */
    bool blocked;                    /* the socket is full; WRITABLE will come */
    bool dirty;                      /* in the lane's flush list */
    bool suspect;
    bool probing;                    /* an OPTIONS of ours is under way */
    bool replaced;                   /* we gave it up ourselves though the node is well: another one at once */
    bool draining;                   /* nobody's any more; closed when what is under way is answered */
    bool gone;                       /* the reader said DOWN: nothing may be put here, though the state is still UP */
    bool send_failed;                /* … by a send that failed: the reader, reading to the end, may know better why */
    bool shut;                       /* shutdown was called, because of */
    cqlring_status shut_status;
    char shut_text[200];
    struct conn *next_dirty;
    int64_t up_since_us;
    int64_t received_us;             /* last time the drain saw an entry of it */
    struct timer watch;              /* connect time-out, then heartbeat and suspicion */
    int64_t waiting_since_us;        /* since when requests wait without a byte; 0 none */
    int64_t suspect_after_us;        /* −1 never */
    uint32_t reads_seen, reads_asked; /* conn->reads when the watch last looked, and when it asked */
    uint32_t run_us, run_count;      /* answers of this turn with the same latency, not yet in the histogram */
    uint32_t inflight_published;     /* what of it the node's numbers have */
    uint64_t orphans_published, queued_published, window_published;
    bool counted;                    /* in node->connections */
    uint8_t rests;                   /* times in a row that it was overloaded */
    int64_t slow_after_us;           /* of silence; INT64_MAX never */
    int64_t rest_until_us;           /* it said so: where another node can, that one takes the request; policy_retry.h */
    struct adapt adapt;              /* what jobs without a window of their own may have under way here; from UP on */
};

struct conn_reader {
    enum reader_state state;
    struct block *block;             /* holds a torn frame; NULL: reads into the lane's block */
    uint32_t at;                     /* bytes of block before this one are parsed */
    struct block *assembly;          /* a frame over several segments (v5) */
    uint32_t assembly_size;          /* of the whole envelope, 0 while its header is torn */
    bool watching;
    uint32_t watch_events;
    struct handshake handshake;
    uint8_t *startup_out;            /* handshake bytes still to be sent */
    uint32_t startup_size, startup_sent;
    uint32_t event_count;            /* events chained, not yet taken */
};

/* An EVENT frame on its way to the submitter; rare, so each is an allocation (bounded: what does not fit is told by
   events_lost, and everything is then read again). */
struct conn_event {
    struct inbox_item item;
    uint32_t size;
    uint8_t flags;
    uint8_t data[];
};

struct conn {
    /* constant */
    struct lane *lane;
    struct conn *next, **link;       /* in the lane's list; submitter */
    struct pool_link *home;          /* the submitter's; NULL once it has been given up */
    const struct cqlring_node *node; /* NULL: a contact point not yet known */
    struct address address;
    char text[64];
    char tls_name[256];
    struct tls_context *tls;         /* a reference; NULL: none */
    const struct handshake_config *config; /* the reader's copy of what to say lives in `said` */
    struct handshake_config said;
    char keyspace[64];               /* what `said` names: the pool may be gone before the startup is through */
    uint32_t slot_count;
    uint32_t frame_size_max;
    struct conn_record *record;      /* the submitter's, from UP to DOWN; NULL: none */
    struct local_ports ports;        /* shards > 0: this shard was asked for */
    struct cqlring_cluster *cluster; /* a reference until DOWN: its strings and certificates are used */

    /* shared */
    _Alignas(64) atomic_uint commands;
    _Atomic(uintptr_t) *slots;
    struct transport transport;
    struct inbox events;             /* reactor → submitter: EVENT frames; see COMPLETION_EVENT */
    atomic_uint event_taken;
    atomic_bool events_lost;
    _Atomic(struct node_stats *) stats; /* the node's, of this lane; NULL before UP, and for control */
    atomic_uint reads;               /* times that bytes came, also of a frame that is not whole yet; reactor, relaxed */

    /* written by the reactor before UP or DOWN is published, then constant */
    struct dialect dialect;
    enum compression compression;
    struct shard_info shard;
    uint8_t version_next;            /* DOWN because the version was refused: try this one; 0: no */
    bool again;                      /* DOWN because a ticket was offered that the server could not bear: at once, without one */
    uint8_t version_perhaps;         /* DOWN without a word in answer to our first: that may be how the version is refused */
    bool no_local_port;              /* DOWN because all local ports that would do are in use */
    cqlring_status down_status;
    int32_t down_code;
    char down_text[300];
    char authenticator[128];
    uint8_t challenge[1024];         /* at UP: the server's last word */
    int32_t challenge_size;
    /* written by the submitter before COMMAND_AUTH */
    uint8_t token[4096];
    int32_t token_size;              /* −1 null, −2 give up, because */
    char refusal[300];
    struct auth_exchange *exchange;  /* the submitter's, while an authenticator of the application's answers */

    _Alignas(64) struct conn_writer writer;
    _Alignas(64) struct conn_reader reader;
};

/* conn.c, submitter: made in state CONNECTING, connect asked for; NULL when out of memory. */
struct conn_request {
    struct cqlring_cluster *cluster;
    const struct cqlring_node *node;
    struct address address;
    const char *text;                /* "10.0.0.3:9042" */
    const char *tls_name;
    const struct handshake_config *config;
    uint32_t in_flight_max, frame_size_max;
    int64_t connect_timeout_us;
    struct local_ports ports;
};
struct conn *cqr_conn_create(struct lane *lane, struct pool_link *home, const struct conn_request *request);
void cqr_conn_free(struct conn *conn);   /* reactor, after close; or a failed create */
void cqr_conn_command(struct conn *conn, unsigned bits); /* submitter */

/* conn_writer.c, submitter */
enum write_result { WRITE_OK, WRITE_FULL, WRITE_TOO_LARGE, WRITE_NO_MEMORY };
/* Frame op's request (values from cells when given, op->values_size bytes with their count, else from op->values) into the
   send block, give it a stream and a slot. */
enum write_result cqr_writer_put(struct conn *conn, struct op *op, const cqlring_bytes *cells, uint32_t cell_count, int64_t now_us);
/* From op's values, which are not its own yet: afterwards they are in the send block. */
enum write_result cqr_writer_put_kept(struct conn *conn, struct op *op, int64_t now_us);
/* Room for an op's values among those of others that wait; the caller writes them. NULL: out of memory. */
uint8_t *cqr_values_room(struct lane *lane, struct op *op, uint32_t size);
/* A copy of these for an op that has none in a block; false: out of memory. */
bool cqr_values_keep(struct lane *lane, struct op *op, const uint8_t *values, uint32_t size);
/* How the EXECUTEs of one version begin on connections of one dialect; all zero before the first. */
struct row_head {
    const struct statement_version *version;
    uint8_t protocol, extensions, frame_flags;
    struct execute_head head;
};
/* The same for a job's row, where cqr_writer_has_room has said yes. head is the caller's, for rows of one plan; made anew when
   it does not fit. */
enum write_result cqr_writer_put_row(struct conn *conn, struct op *op, const cqlring_bytes *cells, uint32_t cell_count, struct row_head *head, int64_t now_us);
void cqr_writer_touch(struct conn *conn);       /* the end of the turn looks at it */
void cqr_writer_answered(struct conn *conn);    /* one less is in flight */
void cqr_writer_stream_free(struct conn *conn, uint16_t stream);
void cqr_block_loosened(struct lane *lane, struct send_block *block); /* it holds less than before, and nobody fills or sends it */
static inline void cqr_values_detach(struct op *op)
{
    struct send_block *block = op->values_block;
    if (op->block_next != NULL)
        op->block_next->block_link = op->block_link;
    *op->block_link = op->block_next;
    op->block_next = NULL;
    op->block_link = NULL;
    block->live_ops--;
    block->live_bytes -= op->values_size;
    op->values_block = NULL;
}
/* The op is settled: its values may go. */
static inline void cqr_values_release(struct lane *lane, struct op *op)
{
    struct send_block *block = op->values_block;
    if (block == NULL)
        return;
    cqr_values_detach(op);
    op->values = NULL;
    if (!block->open && block->spans == 0)
        cqr_block_loosened(lane, block);
}

/* conn_send.c, submitter */
void cqr_writer_flush(struct conn *conn);       /* seal and send; at the end of a turn, or at 64 KiB */
void cqr_writer_writable(struct conn *conn);
/* After DOWN: whose words say why, the writer's (shut_text) or the reader's (down_text)? */
bool cqr_conn_writer_knows(const struct conn *conn);
void cqr_writer_shut(struct conn *conn, cqlring_status status, const char *why); /* shutdown(fd): the reactor will say DOWN */
/* The op's deadline has come or it was cancelled: ORPHAN its slot. False: the reactor has its reply, leave it to that entry. */
bool cqr_writer_orphan(struct conn *conn, struct op *op);
/* Has the first byte of its request been taken by the socket, or is it sealed so that it will be? (a live connection) */
bool cqr_writer_has_begun(const struct conn *conn, const struct op *op);
/* After DOWN: was its request taken whole by the socket? (decision 13) */
bool cqr_writer_was_sent(const struct conn *conn, const struct op *op);
void cqr_writer_fini(struct conn *conn);        /* before goodbye: gives back blocks, disarms timers */

/* conn_reader.c, reactor */
void cqr_reader_command(struct conn *conn, unsigned bits);
void cqr_reader_event(struct conn *conn, uint32_t poll_events);
void cqr_reader_fail(struct conn *conn, cqlring_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void cqr_reader_startup_reply(struct conn *conn, const struct frame_header *header, const uint8_t *body); /* what came in READER_STARTUP, but events */

/* conn_frames.c, reactor: there is something to read */
void cqr_frames_read(struct conn *conn);

#endif
