// Package s3wire is what the two S3 drivers share: configuration, the HTTP
// transport with its timeouts, the meaning of S3's errors, and a remote.Bucket
// on top of a Client that sends one S3 request per method. The drivers in
// tiers/remote/s3 and tiers/remote/minio supply the Client, so both put the same
// bytes under the same keys and judge answers alike.
//
// Ownership: a Bucket is immutable once made, except for one remembered fact
// (whether the store takes DeleteObjects), so its methods run concurrently
// without locks.
//
// Invariants:
//
//   - Every PutObject and UploadPart carries a checksum that the store verifies,
//     as a header and never as a trailer: a store may publish a body that was cut
//     short if no checksum came with it, and many refuse trailers (report 063).
//   - One call sends each request once. Retries belong to remote.WithRetry: they
//     need to know that a conditional write must not be repeated blindly.
//   - A write that was sent and not answered is ErrUnknownOutcome.
//   - After Put, ReadAt or a failed Get returned, nobody reads or writes the
//     caller's bytes, and no goroutine or connection of the call is left but idle
//     ones (report 137).
//   - A listing that is broken off, repeated, out of order or outside its prefix
//     is an error (report 104).
//   - No error, URL or printed configuration contains a secret.
package s3wire
