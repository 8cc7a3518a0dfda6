import type { TranslationBundle } from '@jupyterlab/translation';
import { IGroup } from '../model/sorting';
import {
  baseName,
  formatDuration,
  formatPercent,
  formatShare
} from '../format';
import { ICard } from '../model/gpu-cards';
import { IFeedback } from '../model/model';
import { cardActions } from '../model/permissions';
import { ISnapshot } from '../model/snapshot';
import { cardWord } from '../labels';
import { Fact, factsHeight, feedbackHeight } from './details';
import * as heights from './row-heights';
import { ITreeItem } from './tree';

export interface IGroupItem extends ITreeItem {
  kind: 'group';
  group: IGroup;
}

export interface ICardItem extends ITreeItem {
  kind: 'card';
  card: ICard;
  feedback: IFeedback | undefined;
}

export type GpuItem = IGroupItem | ICardItem;

export function itemsOf(
  groups: IGroup[],
  snapshot: ISnapshot,
  feedback: ReadonlyMap<string, IFeedback>,
  closed: ReadonlySet<string>,
  opened: ReadonlySet<string>,
  trans: TranslationBundle
): GpuItem[] {
  const hasTitles = groups.some(group => group.title !== '');
  return groups.flatMap((group, place): GpuItem[] => {
    const key = `group:${group.key}`;
    const isClosed = hasTitles && closed.has(key);
    const head: IGroupItem = {
      kind: 'group',
      key,
      level: 1,
      height: heights.GROUP,
      expanded: !isClosed,
      setSize: groups.length,
      posInSet: place + 1,
      group
    };
    const cards = isClosed
      ? []
      : group.cards.map((card, index) => ({
          ...cardItem(card, snapshot, feedback, opened, trans),
          level: hasTitles ? (2 as const) : (1 as const),
          setSize: group.cards.length,
          posInSet: index + 1
        }));
    return hasTitles ? [head, ...cards] : cards;
  });
}

function cardItem(
  card: ICard,
  snapshot: ISnapshot,
  feedbacks: ReadonlyMap<string, IFeedback>,
  opened: ReadonlySet<string>,
  trans: TranslationBundle
): ICardItem {
  const isOpen = opened.has(card.key);
  const feedback = feedbacks.get(card.key);
  const height =
    cardHeight(card) +
    feedbackHeight(feedback) +
    (isOpen ? openedHeight(card, snapshot, trans) : 0);
  return {
    kind: 'card',
    key: card.key,
    level: 1,
    height,
    expanded: isOpen,
    setSize: 0,
    posInSet: 0,
    card,
    feedback
  };
}

function openedHeight(
  card: ICard,
  snapshot: ISnapshot,
  trans: TranslationBundle
): number {
  const facts = factsOf(card, trans).length;
  return factsHeight(facts, cardActions(card, snapshot).length);
}

/** How high a card's row is before it is opened. */
export function cardHeight(card: ICard): number {
  return heights.CARD + (hasMeters(card) ? heights.METERS : 0);
}

export function hasMeters(card: ICard): boolean {
  return card.memoryBytes > 0 || card.utilization !== null;
}

export function summary(trans: TranslationBundle, group: IGroup): string {
  const free = group.cards.filter(card => card.state === 'free').length;
  return trans.__('%1 of %2 free', free, group.cards.length);
}

export function holder(card: ICard): string {
  return [card.user, card.notebook && baseName(card.notebook)]
    .filter(Boolean)
    .join(' · ');
}

/** What a screen reader says of a row. */
export function spoken(item: GpuItem, trans: TranslationBundle): string {
  return item.kind === 'group'
    ? spokenGroup(item.group, trans)
    : spokenCard(item.card, trans);
}

function spokenGroup(group: IGroup, trans: TranslationBundle): string {
  const texts = [group.title, summary(trans, group), group.note];
  return texts.filter(Boolean).join(', ');
}

function spokenCard(card: ICard, trans: TranslationBundle): string {
  const parts = [
    trans.__('GPU %1', card.index),
    cardWord(trans, card.state),
    holder(card)
  ];
  if (card.heldS !== null && card.state !== 'free') {
    parts.push(formatDuration(card.heldS));
  }
  if (card.memoryBytes > 0) {
    const share = formatShare(card.usedBytes, card.memoryBytes);
    parts.push(trans.__('memory %1', share));
  }
  if (card.utilization !== null) {
    parts.push(trans.__('busy %1', formatPercent(card.utilization)));
  }
  return parts.filter(Boolean).join(', ');
}

export function factsOf(card: ICard, trans: TranslationBundle): Fact[] {
  const facts: Fact[] = [[trans.__('State'), cardWord(trans, card.state)]];
  const add = (name: string, value: string) => {
    if (value) {
      facts.push([name, value]);
    }
  };
  add(trans.__('Card'), card.name);
  add(trans.__('Holder'), card.user);
  add(trans.__('Notebook'), card.notebook);
  add(trans.__('Run'), card.run);
  if (card.heldS !== null && card.state !== 'free') {
    add(trans.__('Held for'), formatDuration(card.heldS));
  }
  if (card.memoryBytes > 0) {
    add(trans.__('Memory'), formatShare(card.usedBytes, card.memoryBytes));
  }
  if (card.temperature !== null) {
    add(trans.__('Temperature'), `${Math.round(card.temperature)} °C`);
  }
  add(trans.__('UUID'), card.uuid);
  return facts;
}
