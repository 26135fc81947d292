package s3wire

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"strings"
	"time"

	"github.com/strandline-io/strandline/tiers/remote"
)

// Client is what a driver supplies: S3's requests, one per call, never repeated,
// with whole keys. Its errors are the SDK's; Fault tells what they say.
type Client interface {
	Put(ctx context.Context, key string, u Upload) (Stored, error)
	// Get asks for byteRange as in the HTTP header, all of the object if empty.
	Get(ctx context.Context, key, byteRange, etag string) (io.ReadCloser, Header, error)
	// Head asks for the checksum too, unless that is MD5: such a store may know no
	// header for it.
	Head(ctx context.Context, key, checksum string) (Header, error)
	ListPage(ctx context.Context, r PageRequest) (Page, error)
	// DeleteMany answers for every key that the store spoke of.
	DeleteMany(ctx context.Context, keys []string) ([]Deleted, error)
	DeleteOne(ctx context.Context, key string) error
	CreateUpload(ctx context.Context, key, checksum string) (id string, err error)
	UploadPart(ctx context.Context, key, id string, number int, u Upload) (Stored, error)
	CompleteUpload(ctx context.Context, key, id string, parts []Part, whole Sum) (Stored, error)
	AbortUpload(ctx context.Context, key, id string) error
	ListUploads(ctx context.Context, r UploadsRequest) (UploadsPage, error)
	// Fault is what an error of the others says of the store's answer; the zero
	// value if there was none.
	Fault(err error) Fault
}

// Upload is the body of a PutObject or UploadPart.
type Upload struct {
	Body io.ReadSeeker
	Size int64
	Sum  Sum
	If   remote.Cond // PutObject only
}

// Sum is a checksum in base64, as S3's headers carry it. One field is set.
type Sum struct {
	CRC32C string
	MD5    string
}

// Stored is the answer to a write. Fields that the store left out are empty.
type Stored struct {
	ETag   string
	CRC32C string
}

// Part is a finished part of an upload.
type Part struct {
	Number int
	ETag   string
	CRC32C string
}

// Header is what the store tells of an object.
type Header struct {
	Length       int64  // of the body that comes with it
	ContentRange string // as in HTTP, empty if the body is the whole object
	ETag         string
	CRC32C       string // empty if unknown
	CRCType      string // FULL_OBJECT, COMPOSITE or empty
	Modified     time.Time
}

// PageRequest asks for one page of a listing. Token, once there is one, takes
// the place of StartAfter.
type PageRequest struct {
	Prefix, StartAfter, Delimiter, Token string
}

// Page is one page of a listing.
type Page struct {
	Objects   []remote.Object
	Prefixes  []string
	Truncated bool
	NextToken string
}

// Deleted is the answer to one key of DeleteMany. Fault is zero if it is gone.
type Deleted struct {
	Key   string
	Fault Fault
}

// UploadsRequest asks for one page of unfinished uploads.
type UploadsRequest struct {
	Prefix, KeyMarker, IDMarker string
}

// UploadsPage is one page of unfinished uploads.
type UploadsPage struct {
	Uploads                     []UnfinishedUpload
	Truncated                   bool
	NextKeyMarker, NextIDMarker string
}

// UnfinishedUpload is a multipart upload that was neither completed nor aborted.
type UnfinishedUpload struct {
	Key, ID string
	Begun   time.Time
}

// Fault is an error answer of the store. Either field may be missing: HEAD has
// no body, and gateways invent codes.
type Fault struct {
	Code    string
	Status  int
	Message string
	Region  string // where the store says that the bucket is
}

// TrimETag is an entity tag without its quotes.
func TrimETag(s string) string { return strings.Trim(s, `"`) }

func encodeCRC(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// decodeCRC reads a checksum header. That of a composite checksum carries the
// number of parts ("AAAAAA==-3") and is no CRC of the object.
func decodeCRC(s, kind string) (uint32, bool) {
	if kind == "COMPOSITE" {
		return 0, false
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}
