package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/strandline-io/strandline/gateway/admin/client"
)

// lookUpTime bounds a look-up of a name and a question to a node.
const lookUpTime = 3 * time.Second

// listeners checks the addresses of the node.
func (e *exam) listeners(ctx context.Context) []Check {
	node := e.node(ctx)
	checks := []Check{
		e.port(ctx, "kafka.listen", e.c.Kafka.Listen, node),
		e.port(ctx, "admin.listen", e.c.Admin.Listen, node),
	}
	if e.c.Kafka.Advertised != "" {
		checks = append(checks, advertised(ctx, e.c.Kafka.Advertised))
	}
	return checks
}

// node is the node that answers at the admin address, nil if none does.
func (e *exam) node(ctx context.Context) *client.Cluster {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	c, err := client.New(e.c.Admin.Listen, nil).Cluster(ctx)
	if err != nil || c.ClusterID == "" {
		return nil
	}
	return &c
}

// port tries whether a node could listen there.
func (e *exam) port(ctx context.Context, name, address string, node *client.Cluster) Check {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		_ = l.Close() // nobody has connected to it
		return ok(name, "%s is free", address)
	}
	c := ok(name, "%s: %v", address, err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && node != nil && e.running.held:
		c.Found = address + " is used by the node that runs, version " + node.Version
		return c
	case errors.Is(err, syscall.EADDRINUSE) && node != nil:
		return c.fail("a node with another data directory runs here (cluster %s): stop it, or change %s", node.ClusterID, name)
	case errors.Is(err, syscall.EADDRINUSE) && e.running.held:
		c.Found = address + " is used, it seems by the node that runs"
		return c
	case errors.Is(err, syscall.EADDRINUSE):
		return c.fail("stop what uses the port (ss -ltnp shows it), or change %s", name)
	case errors.Is(err, os.ErrPermission):
		return c.fail("ports below 1024 need a privilege: choose another, or give the program CAP_NET_BIND_SERVICE")
	}
	return c.fail("give %s an address of this machine", name)
}

// advertised looks the name up that clients are told.
func advertised(ctx context.Context, address string) Check {
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return skip("kafka.advertised", "%v", err) // the configuration's check says what is wrong
	}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	c := ok("kafka.advertised", "%s is %v here", host, addrs)
	if err != nil {
		c.Found = err.Error()
		return c.warn("clients are told to connect to %s: make sure that they can resolve it; this machine cannot", address)
	}
	return c
}
