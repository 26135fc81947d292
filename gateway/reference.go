package gateway

import (
	"fmt"
	"strings"

	"github.com/strandline-io/strandline/gateway/broker"
)

// ConfigReference is docs/CONFIGURATION.md: every key and every topic setting,
// made from the tables that the program itself uses.
func ConfigReference() string {
	var b strings.Builder
	b.WriteString(`# Configuration

This page is generated from the program's own tables: a test compares the two.

A node reads one YAML file (--config), the environment and its flags. Flags win over the environment, that over the file,
that over the defaults. An unknown key in the file is an error. ` + "`strandline config print`" + ` shows every value with
the place that it comes from; secrets are never shown.

The key ` + "`node.id`" + ` is ` + "`node: {id: 1}`" + ` in YAML, ` + "`STRANDLINE_NODE_ID`" + ` in the environment and ` +
		"`--node-id`" + ` on the command line.

## Keys of a node

| Key | Values | Default | Meaning |
|---|---|---|---|
`)
	c := DefaultConfig()
	for _, s := range c.settings() {
		if !strings.HasPrefix(s.key, "topics.defaults.") {
			row(&b, s.key, s.kind, s.get(), s.doc)
		}
	}
	b.WriteString(`
## Topic settings

They carry Kafka's names and are set when a topic is created or with ` + "`strandline topic config`" + `. Every one has a
default of the node: ` + "`segment.bytes`" + ` has the key ` + "`topics.defaults.segment_bytes`" + `, and ` + "`strandline.ack`" + ` has
` + "`topics.defaults.ack`" + `. The default of ` + "`remote.storage.enable`" + ` is true on a node with a bucket.

| Setting | Values | Default | Meaning |
|---|---|---|---|
`)
	for _, s := range broker.TopicSettings(true) {
		row(&b, s.Name, s.Valid, s.Default, s.Doc)
	}
	return b.String()
}

func row(b *strings.Builder, name, values, otherwise, doc string) {
	if otherwise != "" {
		otherwise = "`" + otherwise + "`"
	}
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, cell.Replace(values), otherwise, cell.Replace(doc))
}
