// Package testenv runs a whole node in one process on a file system in memory
// whose crash copies drop what was not synced, and on a bucket in memory with a
// schedule of faults; a Scheduler holds jobs at their points. Around it:
// layers (who may import whom), s3srv (a real S3 server as a child process),
// faultproxy (an HTTP proxy with faults), binary (the real program as a child
// process), e2e (what a user would see).
package testenv
