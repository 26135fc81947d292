package s3wire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]struct {
		driver string
		c      Config
	}{
		"s3://logs":         {DriverS3, Config{Bucket: "logs"}},
		"s3://logs/":        {DriverS3, Config{Bucket: "logs"}},
		"s3://logs/a/b/":    {DriverS3, Config{Bucket: "logs", Prefix: "a/b"}},
		"s3://my.logs-1/a/": {DriverS3, Config{Bucket: "my.logs-1", Prefix: "a"}},
		"s3://logs?driver=minio&region=eu-west-1&endpoint=https://s3.example.org:9000": {
			DriverMinio, Config{Bucket: "logs", Region: "eu-west-1", Endpoint: "https://s3.example.org:9000"},
		},
		"s3://logs/p?endpoint=http%3A%2F%2F127.0.0.1%3A7070%2F&checksum=md5&addressing=virtual": {
			DriverS3, Config{Bucket: "logs", Prefix: "p", Endpoint: "http://127.0.0.1:7070", Checksum: ChecksumMD5, Addressing: AddressVirtual},
		},
		"s3://logs?addressing=path": {DriverS3, Config{Bucket: "logs", Addressing: AddressPath}},
	} {
		c, driver, err := ParseURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		want.c = want.c.WithDefaults()
		wantSame(t, raw, c, want.c)
		if driver != want.driver {
			t.Errorf("%s: driver %s", raw, driver)
		}
		again, driver, err := ParseURL(c.URL(driver))
		if err != nil || driver != want.driver {
			t.Errorf("%s is written as %s: %v", raw, c.URL(driver), err)
		}
		wantSame(t, c.URL(driver), again, want.c)
	}
}

// wantSame compares configurations but for the clock.
func wantSame(tb testing.TB, what string, got, want Config) {
	tb.Helper()
	got.Now, want.Now = nil, nil
	if !reflect.DeepEqual(got, want) {
		tb.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestParseURLRefuses(t *testing.T) {
	for raw, said := range map[string]string{
		"gs://logs":                           "want s3://",
		"s3://":                               "bucket",
		"s3://ab":                             "3 to 63",
		"s3:/logs":                            "write s3://BUCKET/PREFIX",
		"s3:logs":                             "write s3://BUCKET/PREFIX",
		"s3://key:secret@logs":                "take the keys out",
		"s3://logs?endpoint=127.0.0.1:9000":   "endpoint",
		"s3://logs?endpoint=ftp://host":       "http://HOST",
		"s3://logs?endpoint=http://host/path": "no path",
		"s3://logs?endpoint=http://u:secret@host": "take the user and password out",
		"s3://logs?driver=gcs":                    "choose s3 or minio",
		"s3://logs?driver=s3&driver=minio":        "2 times",
		"s3://logs?checksum=none":                 "choose crc32c or md5",
		"s3://logs?addressing=dns":                "choose path or virtual",
		"s3://logs?secret=x":                      "unknown option",
		"s3://logs/a//b":                          "empty segment",
		"s3://lo%zzgs":                            "bucket URL",
	} {
		_, _, err := ParseURL(raw)
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%s: %v, want %q", raw, err, said)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: the secret shows in %v", raw, err)
		}
	}
}

func TestConfigValid(t *testing.T) {
	for said, change := range map[string]func(*Config){
		"part size":       func(c *Config) { c.PartSize = MinPartSize - 1 },
		"single put size": func(c *Config) { c.SinglePut = 1000 },
		"concurrency":     func(c *Config) { c.Concurrency = -1 },
		"both an access":  func(c *Config) { c.Credentials.AccessKey = "a" },
		"access key and":  func(c *Config) { c.Credentials.SecretKey = "s" },
	} {
		c := Config{Bucket: "logs"}.WithDefaults()
		if err := c.Valid(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.Valid(); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%v, want %q", err, said)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	c := Config{Bucket: "logs", Credentials: Credentials{AccessKey: "AKIA", SecretKey: "hush", SessionToken: "hush"}}.WithDefaults()
	asJSON, err := json.Marshal(c.Credentials)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		fmt.Sprint(c.Credentials), fmt.Sprintf("%v", c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), string(asJSON),
		c.URL(DriverS3), NewBucket(DriverS3, c, nil, nil).String(),
	} {
		if strings.Contains(s, "hush") {
			t.Errorf("the secret shows in %s", s)
		}
	}
	if s := c.Credentials.String(); !strings.Contains(s, "AKIA") {
		t.Errorf("%s does not tell which key", s)
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"s3://logs/a/b?driver=minio", "s3://logs?endpoint=http://h:1&checksum=md5", "s3://logs?addressing=path&region=x", "://", "s3://a%20b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		c, driver, err := ParseURL(raw)
		if err != nil {
			return
		}
		again, driver2, err := ParseURL(c.URL(driver))
		if err != nil || driver != driver2 {
			t.Fatalf("%q is written as %q, which is read as %s, %v", raw, c.URL(driver), driver2, err)
		}
		wantSame(t, raw, again, c)
	})
}
