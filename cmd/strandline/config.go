package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/strandline-io/strandline/gateway"
)

// addConfigFlags gives a command a flag for every key of the configuration, and
// --config for the file.
func addConfigFlags(fs *pflag.FlagSet) {
	fs.String("config", "", "configuration file (YAML); STRANDLINE_CONFIG does the same")
	for _, f := range gateway.Flags() {
		fs.String(f.Name, f.Default, f.Usage)
		if f.Default == "true" || f.Default == "false" {
			fs.Lookup(f.Name).NoOptDefVal = "true"
		}
	}
}

// loadConfig reads the configuration that the command's flags, the environment
// and the file make.
func loadConfig(c *cobra.Command) (*gateway.Loaded, error) {
	src := gateway.Sources{File: os.Getenv("STRANDLINE_CONFIG"), Environ: os.Environ(), Flags: map[string]string{}}
	known := make(map[string]bool)
	for _, f := range gateway.Flags() {
		known[f.Name] = true
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "config":
			src.File = f.Value.String()
		case known[f.Name]:
			src.Flags[f.Name] = f.Value.String()
		}
	})
	return gateway.Load(src)
}

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Look at the configuration"}
	group(cmd)
	cmd.AddCommand(configPrintCommand(), configReferenceCommand())
	return cmd
}

// configPrintCommand shows every key with its value and where that comes from.
// It prints first and then says what a node would refuse, so that the reason can
// be seen.
func configPrintCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every key, its value and where the value comes from",
		Args:  exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := loadConfig(c)
			if err != nil {
				return usageError{err}
			}
			if err := printConfig(c, l, asJSON); err != nil {
				return err
			}
			if err := l.Validate(); err != nil {
				return fmt.Errorf("a node would refuse this configuration:\n%w", err)
			}
			return nil
		},
	}
	addConfigFlags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printConfig(c *cobra.Command, l *gateway.Loaded, asJSON bool) error {
	if asJSON {
		return printJSON(c, l.Entries())
	}
	for _, w := range l.Warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
	}
	tw := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "KEY\tVALUE\tSOURCE")
	for _, e := range l.Entries() {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", e.Key, e.Value, e.Source)
	}
	return tw.Flush()
}

func configReferenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reference",
		Short: "Print the reference of all keys and topic settings as Markdown",
		Args:  exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), gateway.ConfigReference())
			return err
		},
	}
}

// printJSON prints v, indented, with a newline at the end.
func printJSON(c *cobra.Command, v any) error {
	enc := json.NewEncoder(c.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
