package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/billethq/billet/internal/errs"
	"github.com/billethq/billet/internal/model"
)

// jsonFlag adds --json.
func jsonFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("json", false, "print the answer of the API as it is")
}

// printJSON prints an answer as the API gives it.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return a.written(enc.Encode(v))
}

// written gives a failed write of the result its message: a full disk must
// not look like a success.
func (a *app) written(err error) error {
	return errs.Wrap(errs.Unavailable, err, "write the result")
}

// line prints a result of one line.
func (a *app) line(s string) error {
	_, err := io.WriteString(a.Out, s+"\n")
	return a.written(err)
}

// table prints rows in aligned columns, the last one as long as it is.
func (a *app) table(header []string, rows [][]string) error {
	all := append([][]string{header}, rows...)
	widths := make([]int, len(header))
	for _, row := range all {
		for i := range row {
			row[i] = plain(row[i])
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range all {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(a.Out, b.String())
	return a.written(err)
}

// fields prints pairs of a name and a value; those without a value are left
// out.
func (a *app) fields(pairs ...string) error {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(&b, "%-10s %s\n", pairs[i], plain(pairs[i+1]))
		}
	}
	_, err := io.WriteString(a.Out, b.String())
	return a.written(err)
}

// plain makes text safe for a terminal: what a guest or an image names must
// not move the cursor. Lines and tabs stay.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// age is how long ago t was, in its two largest units.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return duration(now.Sub(t))
}

func duration(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%dh", s/86400, s/3600%24)
}

// seconds is a time spent waiting.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// bytesText writes a size in the unit that keeps it short.
func bytesText(n int64) string { return model.Size(n).String() }

func shapeText(s model.Shape) string {
	return fmt.Sprintf("%d vCPU, %s memory, %s disk", s.VCPUs, bytesText(s.Memory), bytesText(s.Disk))
}

// terminal returns the file behind a stream when it is a terminal.
func terminal(stream any) (*os.File, bool) {
	f, ok := stream.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}
