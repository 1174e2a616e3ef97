// Command goclient is RocketMQ's Go client, for tests; it prints JSON lines.
//
//	goclient produce -namesrv H:P -topic T [-mode sync|async|oneway|batch] [-count 10] [-tags A,B]
//	goclient consume -namesrv H:P -topic T -group G [-filter "*"] [-mode push|orderly|pull] [-broadcast]
//	    [-later N] [-expect N] [-counted PREFIX] [-linger MS] [-timeout 60]
//
// -later N asks for a message again until it came N times more; -counted leaves out of the count what begins
// otherwise. It ends with 0 when everything wanted came in time.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv    = flag.String("namesrv", "", "name servers, separated by ;")
	topic      = flag.String("topic", "", "topic")
	group      = flag.String("group", "interop_go", "group")
	mode       = flag.String("mode", "", "see package comment")
	count      = flag.Int("count", 10, "messages to send")
	tags       = flag.String("tags", "", "comma list, used round robin")
	prefix     = flag.String("prefix", "g", "prefix of bodies and keys")
	counted    = flag.String("counted", "", "prefix of bodies that count")
	linger     = flag.Int("linger", 0, "milliseconds to go on at the end")
	filter     = flag.String("filter", "*", "tag expression")
	broadcast  = flag.Bool("broadcast", false, "broadcasting")
	later      = flag.Int("later", 0, "ask for redelivery until redelivered this often")
	expect     = flag.Int("expect", -1, "messages wanted")
	timeout    = flag.Int("timeout", 60, "seconds")

	outLock sync.Mutex
)

func out(event string, fields map[string]any) {
	fields["event"] = event
	text, _ := json.Marshal(fields)
	outLock.Lock()
	defer outLock.Unlock()
	fmt.Println(string(text))
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: goclient produce|consume -namesrv H:P -topic T ...")
		os.Exit(2)
	}
	command := os.Args[1]
	os.Args = append(os.Args[:1], os.Args[2:]...)
	flag.Parse()
	rlog.SetLogLevel("error")
	rlog.SetOutputPath(os.DevNull)
	run := produce
	if command == "consume" {
		run = consume
	}
	ok, err := run(strings.Split(*namesrv, ";"))
	if err != nil {
		out("error", map[string]any{"text": err.Error()})
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func message(i int) *primitive.Message {
	text := fmt.Sprintf("%s-%d", *prefix, i)
	m := primitive.NewMessage(*topic, []byte(text)).WithKeys([]string{text})
	if *tags != "" {
		list := strings.Split(*tags, ",")
		m.WithTag(list[i%len(list)])
	}
	return m
}

func produce(servers []string) (bool, error) {
	p, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName(*group), producer.WithRetry(2))
	if err != nil {
		return false, err
	}
	if err = p.Start(); err != nil {
		return false, err
	}
	started := time.Now()
	var lock sync.Mutex
	sent, failed := 0, 0
	note := func(i, n int, r *primitive.SendResult, err error) {
		lock.Lock()
		defer lock.Unlock()
		if err != nil {
			failed += n
			out("error", map[string]any{"i": i, "text": err.Error()})
			return
		}
		sent += n
		if r != nil {
			out("sent", map[string]any{"i": i, "status": int(r.Status), "uniq": r.MsgID, "offsetMsgId": r.OffsetMsgID,
				"broker": r.MessageQueue.BrokerName, "queue": r.MessageQueue.QueueId, "offset": r.QueueOffset})
		}
	}
	ctx := context.Background()
	var pending sync.WaitGroup
	if *mode == "batch" {
		list := make([]*primitive.Message, *count)
		for i := range list {
			list[i] = message(i)
		}
		r, err := p.SendSync(ctx, list...)
		note(0, *count, r, err)
	} else {
		for i := 0; i < *count; i++ {
			switch *mode {
			case "oneway":
				note(i, 1, nil, p.SendOneWay(ctx, message(i)))
			case "async":
				i := i
				pending.Add(1)
				err := p.SendAsync(ctx, func(_ context.Context, r *primitive.SendResult, err error) {
					note(i, 1, r, err)
					pending.Done()
				}, message(i))
				if err != nil {
					note(i, 1, nil, err)
					pending.Done()
				}
			default:
				r, err := p.SendSync(ctx, message(i))
				note(i, 1, r, err)
			}
		}
	}
	pending.Wait()
	if *mode == "oneway" {
		time.Sleep(time.Second)
	}
	_ = p.Shutdown()
	if *expect < 0 {
		*expect = *count
	}
	out("summary", map[string]any{"ok": sent >= *expect, "sent": sent, "failed": failed, "ms": time.Since(started).Milliseconds()})
	return sent >= *expect, nil
}

func consume(servers []string) (bool, error) {
	var lock sync.Mutex
	seen := map[string]bool{}
	deliveries := 0
	take := func(m *primitive.MessageExt) bool {
		lock.Lock()
		defer lock.Unlock()
		deliveries++
		accept := *later >= 0 && int(m.ReconsumeTimes) >= *later
		event := "message"
		if accept && strings.HasPrefix(string(m.Body), *counted) {
			seen[m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)+m.GetKeys()] = true
		}
		if !accept {
			event = "later"
		}
		body := string(m.Body)
		if len(body) > 64 {
			body = body[:64]
		}
		out(event, map[string]any{"topic": m.Topic, "queue": m.Queue.QueueId, "offset": m.QueueOffset, "body": body, "keys": m.GetKeys(),
			"tags": m.GetTags(), "reconsume": m.ReconsumeTimes, "physical": m.CommitLogOffset, "properties": m.GetProperties()})
		return accept
	}
	done := func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(seen) >= *expect
	}
	started := time.Now()
	deadline := started.Add(time.Duration(*timeout) * time.Second)
	options := []consumer.Option{consumer.WithNameServer(servers), consumer.WithGroupName(*group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: *filter}
	if *mode == "pull" {
		c, err := rocketmq.NewPullConsumer(options...)
		if err != nil {
			return false, err
		}
		if err = c.Subscribe(*topic, selector); err != nil {
			return false, err
		}
		if err = c.Start(); err != nil {
			return false, err
		}
		out("ready", map[string]any{"instances": 1})
		for !done() && time.Now().Before(deadline) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			cr, err := c.Poll(ctx, 500*time.Millisecond)
			cancel()
			if consumer.IsNoNewMsgError(err) || cr == nil {
				continue
			}
			for _, m := range cr.GetMsgList() {
				take(m)
			}
			c.ACK(context.Background(), cr, consumer.ConsumeSuccess)
		}
		_ = c.Shutdown()
	} else {
		model := consumer.Clustering
		if *broadcast {
			model = consumer.BroadCasting
		}
		options = append(options, consumer.WithConsumerModel(model), consumer.WithConsumerOrder(*mode == "orderly"))
		c, err := rocketmq.NewPushConsumer(options...)
		if err != nil {
			return false, err
		}
		err = c.Subscribe(*topic, selector, func(_ context.Context, list ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			result := consumer.ConsumeSuccess
			for _, m := range list {
				if !take(m) {
					result = consumer.ConsumeRetryLater
				}
			}
			return result, nil
		})
		if err != nil {
			return false, err
		}
		if err = c.Start(); err != nil {
			return false, err
		}
		out("ready", map[string]any{"instances": 1})
		for !done() && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Duration(*linger) * time.Millisecond)
		_ = c.Shutdown()
	}
	lock.Lock()
	accepted := len(seen)
	lock.Unlock()
	out("summary", map[string]any{"ok": accepted >= *expect, "accepted": accepted, "deliveries": deliveries, "expect": *expect, "ms": time.Since(started).Milliseconds()})
	return accepted >= *expect, nil
}
