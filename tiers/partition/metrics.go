package partition

// Metrics is where owners count. It is shared by all owners of a node.
type Metrics struct{}
