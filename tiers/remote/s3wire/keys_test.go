package s3wire_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-io/strandline/tiers/remote"
	"github.com/strandline-io/strandline/tiers/remote/s3wire"
)

// nowhere takes away every source of keys that this machine may have. The role's
// address is asked for through a file that names none.
func nowhere(t *testing.T) (credentials string) {
	t.Helper()
	credentials = filepath.Join(t.TempDir(), "credentials")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_ACCESS_KEY": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SECRET_KEY": "", "AWS_SESSION_TOKEN": "",
		"MINIO_ROOT_USER": "", "MINIO_ROOT_PASSWORD": "", "MINIO_ACCESS_KEY": "", "MINIO_SECRET_KEY": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "config"), "AWS_SHARED_CREDENTIALS_FILE": credentials,
		"AWS_EC2_METADATA_DISABLED": "true",
		// A role's address on which nobody listens.
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "",
		"AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_ROLE_ARN": "",
	} {
		t.Setenv(name, value)
	}
	return credentials
}

func TestDefaultChain(t *testing.T) {
	credentials := nowhere(t)
	noKeys := func(c *s3wire.Config) { c.Credentials = s3wire.Credentials{} }
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		_, err := open(t, driver, sb, noKeys).Stat(t.Context(), "k")
		wantErr(t, err, remote.ErrDenied)
		if !strings.Contains(err.Error(), "check the keys") {
			t.Errorf("without any keys: %v", err)
		}
		t.Setenv("AWS_ACCESS_KEY_ID", sb.AccessKey)
		t.Setenv("AWS_SECRET_ACCESS_KEY", sb.SecretKey)
		mustPut(t, open(t, driver, sb, noKeys), "k", []byte("from the environment"))
	})
	each(t, func(t on) {
		driver, sb := t.driver, t.bucket
		file := "[default]\naws_access_key_id = " + sb.AccessKey + "\naws_secret_access_key = " + sb.SecretKey + "\n"
		if err := os.WriteFile(credentials, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		mustPut(t, open(t, driver, sb, noKeys), "k", []byte("from the file"))
	})
}
