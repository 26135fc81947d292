// Package s3srv gives tests a real S3 server. In this order: the server that
// STRANDLINE_TEST_S3_ENDPOINT names (with STRANDLINE_TEST_S3_ACCESS_KEY,
// _SECRET_KEY and _REGION); else the program in STRANDLINE_TEST_S3_BIN, called as
// versitygw is; else versitygw, built from the module in the folder server.
// There is no skipping: a machine without a server fails the test and says which
// command helps.
//
// Building takes minutes where nothing is cached, so `make test` and .ci/run do
// it before the tests' time runs:
//
//	cd testenv/s3srv/server && go tool -n versitygw
//
// Ownership: a Server is a child process on 127.0.0.1 with a folder of its own.
// A package whose TestMain is Main shares one among its tests and stops it at the
// end; without that, each Start has its own until its test ends. Where Linux
// allows it the child dies with the test binary.
//
// versitygw keeps metadata in user xattrs. Its --sidecar mode needs none but tears
// overwrites, so it is never used: a folder without xattrs is an error.
package s3srv
