package gateway

import (
	"strconv"

	"github.com/strandline-io/strandline/gateway/broker"
	"github.com/strandline-io/strandline/gateway/groups"
)

// kafkaNames are the node's own settings as DescribeConfigs shows them, under
// Kafka's names where it has one; the others are strandline.KEY. Secrets are
// named and not shown.
func (c *Config) kafkaNames() []broker.ConfigEntry {
	id, one := strconv.Itoa(int(c.NodeID)), "1"
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	advertised := c.Kafka.Advertised
	if advertised == "" {
		advertised = c.Kafka.Listen
	}
	out := []broker.ConfigEntry{
		{Name: "broker.id", Value: id, Type: broker.TypeInt},
		{Name: "node.id", Value: id, Type: broker.TypeInt},
		{Name: "broker.rack", Value: c.NodeRack, Type: broker.TypeString},
		{Name: "log.dirs", Value: c.DataDir, Type: broker.TypeString},
		{Name: "listeners", Value: kafkaListener + "://" + c.Kafka.Listen, Type: broker.TypeList},
		{Name: "advertised.listeners", Value: kafkaListener + "://" + advertised, Type: broker.TypeList},
		{Name: "auto.create.topics.enable", Value: strconv.FormatBool(c.Topics.AutoCreate), Type: broker.TypeBoolean},
		{Name: "num.partitions", Value: number(c.Topics.DefaultPartitions), Type: broker.TypeInt},
		{Name: "default.replication.factor", Value: one, Type: broker.TypeInt},
		{Name: "offsets.topic.replication.factor", Value: one, Type: broker.TypeInt},
		{Name: "delete.topic.enable", Value: "true", Type: broker.TypeBoolean},
		{Name: "remote.log.storage.system.enable", Value: strconv.FormatBool(c.Bucket != ""), Type: broker.TypeBoolean},
		{Name: "socket.request.max.bytes", Value: number(c.Kafka.MaxRequestBytes), Type: broker.TypeInt},
		{Name: "fetch.max.bytes", Value: number(c.Kafka.FetchMaxBytes), Type: broker.TypeInt},
		{Name: "max.incremental.fetch.session.cache.slots", Value: number(c.Kafka.FetchSessions), Type: broker.TypeInt},
		{Name: "max.connections", Value: number(c.Kafka.MaxConnections), Type: broker.TypeInt},
		{Name: "max.connections.per.ip", Value: number(c.Kafka.MaxConnectionsPerIP), Type: broker.TypeInt},
		{Name: "connections.max.idle.ms", Value: number(c.Kafka.IdleTimeout.Milliseconds()), Type: broker.TypeLong},
		{Name: "log.retention.check.interval.ms", Value: number(c.RetentionCheck.Milliseconds()), Type: broker.TypeLong},
		{Name: "offset.metadata.max.bytes", Value: number(groups.MaxMetadata), Type: broker.TypeInt},
	}
	for _, s := range append(c.nodeSettings(), c.listenerSettings()...) {
		e := broker.ConfigEntry{Name: "strandline." + s.key, Value: s.shown(), Type: broker.TypeString, Doc: s.doc}
		if s.secret {
			e.Value, e.Sensitive = "", true
		}
		out = append(out, e)
	}
	for i := range out {
		e := &out[i]
		e.ReadOnly, e.Source = true, broker.SourceStatic
		e.Synonyms = []broker.ConfigSynonym{}
	}
	return out
}
