package minio

import (
	"errors"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// roleTime bounds the question for the machine's role: where there is none, often
// nobody answers at all.
const roleTime = 2 * time.Second

// errNoKeys takes the place of minio-go's habit to go on anonymously.
var errNoKeys = errors.New("no keys: neither the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), nor the shared credentials file, nor the machine's role has any")

// keys are the static keys, or a chain that renews what expires.
func keys(c Config) *credentials.Credentials {
	if k := c.Credentials; !k.IsZero() {
		return credentials.NewStaticV4(k.AccessKey, k.SecretKey, k.SessionToken)
	}
	return credentials.New(&chain{credentials.Chain{Providers: []credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.EnvMinio{},
		&credentials.FileAWSCredentials{},
		// The role's address is of this machine: no proxy leads there.
		&credentials.IAM{Client: &http.Client{Timeout: roleTime, Transport: &http.Transport{DisableKeepAlives: true}}},
	}}})
}

// chain is a chain of providers that fails when none of them has keys.
type chain struct {
	credentials.Chain
}

// Retrieve is of credentials.Provider.
func (c *chain) Retrieve() (credentials.Value, error) { return found(c.Chain.Retrieve()) }

// RetrieveWithCredContext is of credentials.Provider.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	return found(c.Chain.RetrieveWithCredContext(cc))
}

func found(v credentials.Value, err error) (credentials.Value, error) {
	if err == nil && v.SignerType == credentials.SignatureAnonymous {
		err = errNoKeys
	}
	return v, err
}
