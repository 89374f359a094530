package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/billethq/billet/internal/api"
)

func (a *app) token() *cobra.Command {
	return group("token", "Work with tokens", a.tokenCreate(), a.tokenLs(), a.tokenRm())
}

func (a *app) tokenCreate() *cobra.Command {
	var req api.CreateTokenRequest
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a token; standard output gets its secret, once",
		Args: arguments(1, 1),
	}
	f := c.Flags()
	f.StringVar((*string)(&req.Class), "class", "", "who holds it: human, agent or ci; default: human")
	f.StringVar((*string)(&req.Role), "role", "", "what it may call: admin, user, node or gateway; default: user")
	f.StringVar(&req.Expires, "expires", "", "how long it opens anything, such as 720h; default: for ever")
	f.BoolVar(&req.E2B, "e2b", false, "for clients of the E2B API: print the variables that they read; the class is then agent by default")
	completeFlag(c, "class", oneOf("human", "agent", "ci"))
	completeFlag(c, "role", oneOf("admin", "user", "node", "gateway"))
	json := jsonFlag(c)
	c.RunE = a.calling(func(ctx context.Context, client *api.Client, args []string) error {
		req.Name = args[0]
		t, err := client.CreateToken(ctx, req)
		if err != nil {
			return err
		}
		if *json {
			return a.printJSON(t)
		}
		if req.E2B {
			return a.exportE2B(ctx, client, t)
		}
		a.note("token %s of role %s; keep it, it is not shown again", t.Name, t.Role)
		return a.line(t.Secret)
	})
	return c
}

// exportE2B prints what a client of the E2B API reads from its environment.
func (a *app) exportE2B(ctx context.Context, client *api.Client, t api.CreatedToken) error {
	info, err := client.Info(ctx)
	if err != nil {
		return err
	}
	a.note("token %s of role %s; keep it, it is not shown again", t.Name, t.Role)
	for _, line := range []string{"E2B_API_KEY=" + t.Secret, "E2B_API_URL=" + info.API, "E2B_SANDBOX_URL=" + info.API} {
		if err := a.line("export " + line); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) tokenLs() *cobra.Command {
	c := &cobra.Command{Use: "ls", Short: "List tokens", Args: arguments(0, 0)}
	header := []string{"NAME", "PRINCIPAL", "ROLE", "CLASS", "EXPIRES", "USED", "AGE"}
	return listing(a, c, header, plainly((*api.Client).Tokens), func(now time.Time, t api.Token) []string {
		expires, used := "never", "never"
		switch {
		case t.Expires == nil:
		case t.Expires.Before(now):
			expires = "expired"
		default:
			expires = "in " + duration(t.Expires.Sub(now))
		}
		if t.LastUsed != nil {
			used = age(now, *t.LastUsed) + " ago"
		}
		return []string{t.Name, t.Principal, string(t.Role), string(t.Class), expires, used, age(now, t.Created)}
	})
}

func (a *app) tokenRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Revoke a token", Args: arguments(1, 1), ValidArgsFunction: first(a.tokenNames()),
		RunE: a.calling(func(ctx context.Context, c *api.Client, args []string) error { return c.DeleteToken(ctx, args[0]) }),
	}
}
