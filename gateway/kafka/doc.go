// Package kafka is the wire: it speaks the Kafka protocol to clients and knows
// nothing of how a log is kept. One file per API key (00_produce.go,
// 01_fetch.go, ...) says which versions it serves and what they mean; kmsg does
// all encoding, except that of Fetch responses (fetch_encode.go), which sends the
// records from the buffers they were read into.
//
// # Who owns what
//
// A Server owns its listeners, connections, fetch sessions and memory budgets.
// Every connection has two goroutines: the reader owns the receiving side and
// cuts it into frames, the handler answers one frame after the other and owns the
// sending side. The reader is at most one frame ahead, so that a peer that hangs
// up is noticed while a fetch waits. A request's buffer belongs to its request
// until it is answered, except that of a Produce, which goes to the logs.
//
// # Invariants
//
//   - Responses leave a connection in the order of its requests (T6).
//   - A version that is advertised is answered, always, with a body that decodes;
//     anything else closes the connection, but for ApiVersions (T5, T7).
//   - Memory follows bytes that have arrived, never a number that a peer claims.
//   - No answer waits by polling: a waiting fetch sleeps until a partition tells it.
//   - A panic ends the connection on which it happened and nothing else.
//
// # Not served
//
// Group membership and transactions. They are not advertised, and a client that
// asks for a transaction coordinator or a transactional producer id anyway gets
// TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53): of all codes the one that every
// client takes as final at once, instead of trying again until it times out.
package kafka
