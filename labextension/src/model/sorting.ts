import { CARD_STATES, CardState } from './types';
import { ICard, IHost } from './gpu-cards';

export type Grouping = 'node' | 'user' | 'state' | 'none';
export type Sorting = 'index' | 'memory' | 'utilization' | 'age';

/** How the list of GPUs is arranged; part of the settings. */
export interface IArrangement {
  grouping: Grouping;
  sorting: Sorting;
  onlyMine: boolean;
}

export interface IGroup {
  key: string;
  title: string;
  /** words after the title */
  note: string;
  /** the name of a node's cards, where it has one kind */
  cardName: string;
  cards: ICard[];
}

/** Whether every word of the filter occurs in one of the texts (case does not matter). */
export function matches(filter: string, texts: readonly string[]): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    return true;
  }
  const all = texts.join('\n').toLowerCase();
  return words.every(word => all.includes(word));
}

/** The cards that pass, in groups, sorted. `named` translates states and the names of groups without one. */
export function arrange(
  hosts: readonly IHost[],
  { grouping, sorting, onlyMine }: IArrangement,
  filter: string,
  named: (state: CardState | 'nobody' | 'this-machine') => string
): IGroup[] {
  const cards = hosts
    .flatMap(host => host.cards)
    .filter(card => !onlyMine || card.mine)
    .filter(
      card =>
        filter === '' ||
        matches(filter, [
          card.host,
          `gpu ${card.index}`,
          card.name,
          card.user,
          card.notebook,
          card.run,
          named(card.state)
        ])
    );
  const titled = new Map(hosts.map(host => [host.id, host]));
  const groups = new Map<string, IGroup>();
  for (const card of cards) {
    const key = groupKey(card, grouping);
    let group = groups.get(key);
    if (!group) {
      const title = groupTitle(key, card, grouping, named);
      const notes = titled.get(key)?.notes ?? [];
      const note = grouping === 'node' ? notes.join(' · ') : '';
      const cardName = grouping === 'node' ? card.name : '';
      group = { key, title, note, cardName, cards: [] };
      groups.set(key, group);
    }
    group.cards.push(card);
    group.cardName = group.cardName === card.name ? card.name : '';
  }
  const compare = comparison(sorting);
  const sorted = [...groups.values()];
  sorted.forEach(group => group.cards.sort(compare));
  return sorted.sort(groupComparison(grouping));
}

function groupKey(card: ICard, grouping: Grouping): string {
  switch (grouping) {
    case 'node':
      return card.key.slice(0, card.key.lastIndexOf('/'));
    case 'user':
      return card.user;
    case 'state':
      return card.state;
    case 'none':
      return '';
  }
}

function groupTitle(
  key: string,
  card: ICard,
  grouping: Grouping,
  named: (state: CardState | 'nobody' | 'this-machine') => string
): string {
  switch (grouping) {
    case 'node':
      return card.host || named('this-machine');
    case 'user':
      return key || named('nobody');
    case 'state':
      return named(card.state);
    case 'none':
      return '';
  }
}

function groupComparison(grouping: Grouping): (a: IGroup, b: IGroup) => number {
  switch (grouping) {
    case 'state':
      return (a, b) => rankOf(a.cards[0]) - rankOf(b.cards[0]);
    case 'user': // nobody last
      return (a, b) =>
        Number(a.key === '') - Number(b.key === '') ||
        b.cards.length - a.cards.length ||
        byText(a.title, b.title);
    default:
      return (a, b) => byText(a.title, b.title);
  }
}

function rankOf(card: ICard): number {
  return CARD_STATES.indexOf(card.state);
}

const collator = new Intl.Collator(undefined, { numeric: true });

function byText(a: string, b: string): number {
  return collator.compare(a, b);
}

function comparison(sorting: Sorting): (a: ICard, b: ICard) => number {
  const byPlace = (a: ICard, b: ICard) =>
    byText(a.host, b.host) || byText(a.index, b.index);
  const falling = (of: (card: ICard) => number) => (a: ICard, b: ICard) =>
    of(b) - of(a) || byPlace(a, b);
  switch (sorting) {
    case 'memory':
      return falling(card => card.usedBytes);
    case 'utilization':
      return falling(card => card.utilization ?? -1);
    case 'age':
      return falling(card => card.heldS ?? -1);
    case 'index':
      return byPlace;
  }
}
